"""The order of an epoch for torch's DataLoader, as a pure function of seed and epoch."""

from __future__ import annotations

from collections.abc import Iterator, Sized
from typing import Any, Final, final

from torch import Tensor
from torch.utils.data import Sampler

from train_manager.data.row_batches import epoch_order
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
    >>> from train_manager import SeededDataset, SeededSampler
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
