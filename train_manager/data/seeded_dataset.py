"""The order of an epoch for torch's DataLoader, and the random numbers of its examples, as pure functions of the seed.

What a dataset draws (augmentation, say) normally depends on which worker fetches an example, and on what that worker
fetched before it. Here the random states are set anew for each example.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Sequence, Sized
from typing import Any, Final, final

from torch import Tensor
from torch.utils.data import Dataset, IterableDataset, Sampler, Subset, TensorDataset

from train_manager.data.passes import epoch_order
from train_manager.data.random_state import example_seed, mix_bits, random_states_kept, set_random_states
from train_manager.data.readable import begin_epoch
from train_manager.telling.errors import InputError
from train_manager.validation import require_count


@final
class Index(int):
    """The number of an example, which any dataset takes as its index, with the epoch that it is asked for in.

    So a worker process knows the epoch too, also one that is kept from epoch to epoch with its old copy of the dataset.
    """

    epoch: int

    def __reduce__(self) -> tuple[Any, ...]:
        return index_in, (int(self), self.epoch)


def index_in(row: int, epoch: int) -> Index:
    """Return the number of an example in an epoch.

    >>> index_in(3, epoch=1), [10, 11, 12, 13][index_in(3, epoch=1)]
    (3, 13)
    """
    index = Index(row)  # faster than a __new__ written in Python
    index.epoch = epoch
    return index


@final
class SeededSampler(Sampler[int]):
    """The order of an epoch, as a pure function of seed and epoch; the same as that of ``InMemory`` and ``Rows``.

    For a DataLoader of your own; ``SeededDataLoader`` has one already.

    >>> from torch.utils.data import DataLoader
    >>> from train_manager.data.seeded_dataset import SeededDataset, SeededSampler
    >>> dataset = SeededDataset(range(6), seed=0)
    >>> sampler = SeededSampler(dataset, seed=0)
    >>> loader = DataLoader(dataset, batch_size=4, sampler=sampler)
    >>> first, other = list(loader), sampler.set_epoch(1)
    >>> sampler.set_epoch(0, start=4)  # what is left after the first batch
    >>> [batch.equal(first[1]) for batch in loader], len(loader)
    ([True], 2)

    A TrainManager calls ``set_epoch`` at the start of each epoch. Each number carries its epoch, as ``index.epoch``, so
    that a ``SeededDataset`` knows it in every worker.

    Args:
        data_source: the dataset, or anything with its length.
        seed: determines the orders.
        shuffle: draw a new order for each epoch; without it the examples come in their own order.

    Raises:
        InputError: the dataset has no length, or the seed is not a whole number of at least 0.
    """

    def __init__(self, data_source: Sized, *, seed: int = 0, shuffle: bool = True) -> None:
        try:
            self.num_examples: Final[int] = len(data_source)
        except TypeError as error:
            raise InputError(
                f"SeededSampler was given a {type(data_source).__name__}, which has no length",
                name="data_source",
                cure="give a dataset with len(dataset) and dataset[i]",
            ) from error
        self.seed: int = require_count(seed, "SeededSampler's seed", at_least=0)
        self.shuffle = shuffle
        self.epoch, self.start = 0, 0  # of the next pass: its epoch, and the examples that are left out
        self._known: tuple[tuple[int, int], Tensor] | None = None  # (seed, epoch) and order that were computed last

    def __len__(self) -> int:
        return self.num_examples

    def __repr__(self) -> str:
        return f"SeededSampler({self.num_examples:,} rows, seed={self.seed}, shuffle={self.shuffle})"

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_known": None}

    def __iter__(self) -> Iterator[int]:
        # Read as the pass begins: a later set_epoch is for the next pass.
        epoch, start = self.epoch, self.start
        rows = self.order(epoch)[start:].tolist() if self.shuffle else range(start, self.num_examples)
        for row in rows:
            yield index_in(row, epoch)

    def set_epoch(self, epoch: int, start: int = 0) -> None:
        """Set the epoch, counted from 0, and how many of its examples are left out, because they were given before."""
        self.epoch = require_count(epoch, "epoch", at_least=0)
        self.start = require_count(start, "start", at_least=0)

    def order(self, epoch: int) -> Tensor:
        """Return the order of a shuffled epoch."""
        # Kept, because the sampler and the loader ask for the same one.
        key = self.seed, epoch
        if self._known is None or self._known[0] != key:
            self._known = key, epoch_order(self.num_examples, self.seed, epoch)
        return self._known[1]


@final
class SeededDataset(Dataset[Any]):
    """A dataset whose random numbers are a pure function of seed, epoch and example.

    Before an example is fetched, python's ``random``, ``np.random`` and torch's default generator are seeded. So
    augmentation is the same whichever worker fetches the example, with any number of workers, and after a resume. In
    the main process the three random states are put back afterwards: fetching an example moves none of them.

    >>> import torch
    >>> from train_manager.data.seeded_dataset import SeededDataset
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
