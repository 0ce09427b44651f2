"""Random numbers of a dataset as a pure function of seed, epoch and example: the same in every worker.

What a dataset draws (augmentation, say) normally depends on which worker fetches an example, and on what that worker
fetched before it. Here the random states are set anew for each example.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any, final

from torch.utils.data import Dataset, IterableDataset, Subset, TensorDataset

from train_manager.data.iteration import begin_epoch
from train_manager.data.seeded_sampler import Index
from train_manager.data.seeds import example_seed, mix_bits, random_states_kept, set_random_states
from train_manager.telling.errors import InputError
from train_manager.validation import require_count


@final
class SeededDataset(Dataset[Any]):
    """A dataset whose random numbers are a pure function of seed, epoch and example.

    Before an example is fetched, python's ``random``, ``np.random`` and torch's default generator are seeded. So
    augmentation is the same whichever worker fetches the example, with any number of workers, and after a resume. In
    the main process the three random states are put back afterwards: fetching an example moves none of them.

    >>> import torch
    >>> from train_manager import SeededDataset
    >>> class Noisy(torch.utils.data.Dataset):
    ...     def __len__(self):
    ...         return 4
    ...     def __getitem__(self, row):
    ...         return row + torch.rand(())
    >>> noisy, seeded = Noisy(), SeededDataset(Noisy(), seed=0)
    >>> noisy[2].equal(noisy[2]), seeded[2].equal(seeded[2])
    (False, True)

    The epoch is that of the index, if it comes from a ``SeededSampler``; otherwise that of ``set_epoch``, which does
    not reach workers that are kept from epoch to epoch (``persistent_workers=True``). ``SeededDataLoader`` wraps its
    dataset itself.

    Examples are fetched one by one, because each has its own seed: ``__getitems__`` of the dataset is not called. A
    generator that the dataset keeps for itself (``np.random.default_rng()``, ``torch.Generator()``) is not seeded: use
    the three above. All attributes of the dataset are reachable.

    Args:
        dataset: any dataset with ``dataset[i]``.
        seed: determines the random numbers.

    Raises:
        InputError: the dataset is an ``IterableDataset``, or the seed is not a whole number of at least 0.
    """

    def __init__(self, dataset: Any, seed: int = 0) -> None:
        if isinstance(dataset, IterableDataset):
            raise InputError(
                f"SeededDataset was given a {type(dataset).__name__}, an IterableDataset, whose examples have no index",
                name="dataset",
                cure="give a dataset with dataset[i]",
            )
        self.dataset = dataset
        self.seed: int = require_count(seed, "SeededDataset's seed", at_least=0)
        self.epoch = 0  # of examples whose index carries none
        self.last_seed = 0  # of the example that was fetched last, for SeededCollate

    def __len__(self) -> int:
        return len(self.dataset)

    def __getattr__(self, name: str) -> Any:
        # copy and pickle ask a new object for its methods before it has its attributes: looking up `dataset` here would
        # call this method without an end.
        if name == "dataset" or name.startswith("__"):
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        return getattr(self.dataset, name)

    def __repr__(self) -> str:
        return f"SeededDataset({type(self.dataset).__name__}, seed={self.seed})"

    def set_epoch(self, epoch: int) -> None:
        """Set the epoch of the examples whose index does not carry one."""
        self.epoch = require_count(epoch, "epoch", at_least=0)

    def __getitem__(self, index: int) -> Any:
        (example,) = self.__getitems__([index])
        return example

    def __getitems__(self, indices: Sequence[int]) -> list[Any]:
        """Return some examples. torch's DataLoader calls it for each batch."""
        if draws_nothing(self.dataset):
            self.last_seed = self._seed_of(indices[-1])
            return [self.dataset[operator.index(index)] for index in indices]
        with random_states_kept():
            return [self._fetch(index) for index in indices]

    def _fetch(self, index: int) -> Any:
        self.last_seed = self._seed_of(index)
        set_random_states(self.last_seed)
        return self.dataset[operator.index(index)]  # a plain int, because the dataset may put it into the example

    def _seed_of(self, index: int) -> int:
        if type(index) is Index and index.epoch != self.epoch:
            self.set_epoch(index.epoch)
            begin_epoch(self.dataset, index.epoch)  # in a worker: the TrainManager does not reach its copy
        return example_seed(self.seed, self.epoch, operator.index(index))


@final
class SeededCollate:
    """A function that makes a batch of examples, whose random numbers depend on the batch alone.

    Mixing two examples with each other is often done there.
    """

    def __init__(self, dataset: SeededDataset, collate: Callable[[Any], Any]) -> None:
        self._dataset = dataset  # also in a worker: the copy there that has fetched the examples
        self._collate = collate

    def __call__(self, examples: Any) -> Any:
        with random_states_kept():
            # Mixed, or the draws here would be those of the last example again.
            set_random_states(mix_bits(self._dataset.last_seed))
            return self._collate(examples)


def draws_nothing(dataset: object) -> bool:
    """Return whether fetching an example is known to draw no random number."""
    # Worth knowing, because seeding takes longer than fetching a row of a tensor. `type`: a subclass may draw.
    if type(dataset) is Subset:
        return draws_nothing(dataset.dataset)
    return type(dataset) is TensorDataset
