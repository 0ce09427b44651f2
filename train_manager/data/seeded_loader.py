"""torch's DataLoader with a known position: order and random numbers are a pure function of seed, epoch and example."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, final

import torch
from torch import Tensor
from torch.utils.data import DataLoader, IterableDataset, default_collate

from train_manager.data.passes import Passes, PassPosition
from train_manager.data.random_state import example_seed
from train_manager.data.seeded_dataset import SeededCollate, SeededDataset, SeededSampler
from train_manager.data.shares import ALONE, present_place, rows_of_rank
from train_manager.rebuilding.recorded import recorded
from train_manager.telling.errors import InputError

# Arguments of DataLoader that would determine the order otherwise, with the cure of the error.
_REFUSED = {
    "sampler": "for an order of your own: DataLoader(SeededDataset(dataset), sampler=...)",
    "batch_sampler": "for an order of your own: DataLoader(SeededDataset(dataset), batch_sampler=...)",
    "generator": "give seed=..., which determines the order and the random numbers of the examples",
    "in_order": "leave it out: the position in the data is a number only if the batches come in order",
}


@final
@recorded
class SeededDataLoader(Passes, DataLoader[Any]):  # type: ignore[misc]  # iter() gives an iterator, not torch's own
    """torch's DataLoader, which resumes exactly where it was stopped, also in the middle of an epoch.

    It takes the arguments of DataLoader and a ``seed``:

    >>> import torch
    >>> from torch.utils.data import TensorDataset
    >>> from train_manager import SeededDataLoader
    >>> dataset = TensorDataset(torch.arange(10))
    >>> data = SeededDataLoader(dataset, batch_size=4, shuffle=True, seed=0)
    >>> len(data), [len(numbers) for (numbers,) in data]
    (3, [4, 4, 2])

    The order of an epoch is a pure function of seed and epoch, the same as that of ``InMemory`` and ``Rows``. What the
    dataset draws for an example (augmentation) is a function of seed, epoch and example: see ``SeededDataset``. So both
    are the same with any number of workers, and reading data moves no random state of the training.

    Its state is a few numbers. It counts the batches that were given, not those that workers have read ahead; what was
    given is not read again:

    >>> _ = data.set_epoch(5)
    >>> batches = iter(data)
    >>> first, state = next(batches), data.state_dict()
    >>> resumed = SeededDataLoader(dataset, batch_size=4, shuffle=True, seed=0)
    >>> resumed.load_state_dict(state)
    >>> [torch.equal(a, b) for (a,), (b,) in zip(batches, resumed, strict=True)]
    [True, True]

    Each ``iter()`` is the next epoch; ``data.set_epoch(3)`` makes the next one epoch 3, counted from 0. A TrainManager
    calls it itself, and saves the state with its checkpoints. ``data.example_index`` has the row numbers of the batch
    given last. Workers that are kept (``persistent_workers=True``) belong to one pass at a time: a second pass begun
    during the first has its own.

    Args:
        dataset: a dataset with ``len(dataset)`` and ``dataset[i]``.
        batch_size: the examples of a batch; the last batch may have fewer. None: each example is a batch.
        shuffle: draw a new order for each epoch.
        seed: determines the orders, and the random numbers of the examples.
        drop_last: drop the last batch if it is not full.
        collate_fn: makes a batch of a list of examples; what it draws depends on the batch alone.
        others: any other argument of torch's DataLoader, by name, but ``sampler``, ``batch_sampler``, ``generator`` and
            ``in_order=False``.

    Raises:
        InputError: the dataset has no length or no numbers of its examples, makes no batch, or is seeded already; or an
            argument would determine the order otherwise.
    """

    def __init__(
        self,
        dataset: Any,
        batch_size: int | None = 1,
        shuffle: bool | None = False,
        *,
        seed: int = 0,
        drop_last: bool = False,
        collate_fn: Callable[[Any], Any] | None = None,
        **others: Any,
    ) -> None:
        refuse_other_orders(others)
        require_examples(dataset)
        Passes.__init__(self, len(dataset), 1 if batch_size is None else batch_size, bool(shuffle), seed, drop_last)
        self._seeded = SeededDataset(dataset, seed)  # knows seed and epoch in each worker
        self._sampler = SeededSampler(dataset, seed=seed, shuffle=bool(shuffle))
        if collate_fn not in (None, default_collate):
            collate_fn = SeededCollate(self._seeded, collate_fn)
        DataLoader.__init__(
            self,
            self._seeded,
            batch_size,
            sampler=self._sampler,
            collate_fn=collate_fn,
            drop_last=drop_last,
            generator=torch.Generator(),  # without one, each pass draws a number from torch's default generator
            **{name: value for name, value in others.items() if name not in _REFUSED},
        )
        self._idle: list[Any] = []  # iterators of torch whose workers are kept, and which no pass is reading

    def __getstate__(self) -> dict[str, Any]:
        # Iterators with worker processes cannot be copied.
        return {**super().__getstate__(), "_idle": [], "_iterator": None}

    def __repr__(self) -> str:
        return f"{super().__repr__()[:-1]}, num_workers={self.num_workers})"

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue with the next pass where ``state_dict`` was called, with any number of workers.

        Raises:
            InputError: as that of ``InMemory``: the state was saved with other data, or, within an epoch, with another
                batch size or order.
        """
        super().load_state_dict(state)
        self._sampler.seed = self._seeded.seed = self.seed
        self._idle.clear()  # their workers hold copies of the dataset with the old seed

    def _order(self, epoch: int) -> Tensor:
        return self._sampler.order(epoch)

    @property
    def _index_sampler(self) -> Any:
        # torch (2.13) reads the numbers of the examples of each batch from here. A process among several reads fewer.
        return self.sampler if self.batch_size is None else BatchesOfRank(self.batch_sampler)

    @contextmanager
    def _reading(self, position: PassPosition) -> Iterator[Callable[[Tensor | slice], Any]]:
        # torch reads the sampler when the iterator below is made or asked for its
        # first batch, which is next: no other pass can set the epoch between.
        self._sampler.set_epoch(position.epoch, start=position.batches * self._size)
        self.generator.manual_seed(example_seed(self.seed, position.epoch, 0))  # the seeds of workers are drawn from it
        # With persistent workers DataLoader.__iter__ winds back the iterator in `_iterator`, also while another pass
        # reads it: so each pass gets an iterator that no other pass is reading.
        self._iterator = self._idle.pop() if self._idle else None
        batches = DataLoader.__iter__(self)
        try:
            yield lambda rows: next(batches)
        except GeneratorExit:  # the pass was left before its end: its workers are sound, unlike after an error
            self._keep(batches)
            raise
        self._keep(batches)

    def _keep(self, batches: Any) -> None:
        if self.persistent_workers:
            self._idle.append(batches)


@final
class BatchesOfRank:
    """The numbers of the examples that a process reads of each batch.

    Args:
        batches: the numbers of whole batches.
    """

    def __init__(self, batches: Any) -> None:
        self._batches = batches

    def __len__(self) -> int:
        return len(self._batches)

    def __iter__(self) -> Iterator[list[int]]:
        place = present_place()  # as the pass begins
        if place is ALONE:
            return iter(self._batches)
        return (rows_of_rank(batch, place) for batch in self._batches)


def refuse_other_orders(arguments: Mapping[str, Any]) -> None:
    """Refuse arguments of DataLoader that would determine the order otherwise.

    Raises:
        InputError: with what to do instead.
    """
    for name, cure in _REFUSED.items():
        usual = True if name == "in_order" else None
        if arguments.get(name) not in (usual, None):
            what = f"SeededDataLoader was given {name}=..., but its order is a function of its seed"
            raise InputError(what, name=name, cure=cure)


def require_examples(dataset: object) -> None:
    """Refuse a dataset whose examples cannot be asked for by their numbers.

    Raises:
        InputError: the dataset is an ``IterableDataset``, has no length, or is seeded already.
    """
    what, kind = "", type(dataset).__name__
    cure = "give a dataset with dataset[i] and len(dataset)"
    if isinstance(dataset, IterableDataset):
        what, cure = f"a {kind}, an IterableDataset, whose position is not known", f"{cure}, or use torch's DataLoader"
    elif isinstance(dataset, SeededDataset):
        what, cure = "a SeededDataset, but it seeds the examples itself", "give the dataset that is in it, and seed=..."
    elif not (hasattr(dataset, "__len__") and hasattr(dataset, "__getitem__")):
        what = f"a {kind}, which lacks len(dataset) or dataset[i]"
    if what:
        raise InputError(f"SeededDataLoader was given {what}", name="dataset", cure=cure)
