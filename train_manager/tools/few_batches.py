"""The first two batches of data and the last one, in place of all of them."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator
from itertools import islice
from time import monotonic
from typing import Any, final

from torch.utils.data import DataLoader, IterableDataset

from train_manager.data.iteration import is_endless, length_of
from train_manager.data.one_pass import left_as_found
from train_manager.data.passes import Passes

SECONDS = 30.0  # to read on for the last batch, where it cannot be asked for by its number


@final
class FewBatches:
    """The first two batches of data and the last one, pass after pass.

    They are read as the first pass begins, once, and given as copies, so that what a hook does to a batch is not done
    to the data.

    >>> few = FewBatches([10, 11, 12, 13], "train_data")
    >>> len(few), [(batch, few.place) for batch in few][-1]
    (3, (13, 'the last batch of train_data'))

    Args:
        data: what they are read of; it is left where it was.
        name: what it is called.
        seconds: how long to read on for the last batch.

    Attributes:
        place: the batch that was given last, in words; empty between two passes.
        is_reading: the data are being read, or have failed as they were.
        missed: why the last batch is not among them; empty if it is.
    """

    def __init__(self, data: Iterable[Any], name: str, seconds: float = SECONDS) -> None:
        self.name, self.place, self.missed = name, "", ""
        self._data, self._seconds = data, seconds
        self._read: list[tuple[Any, Any]] | None = None  # batches, and the numbers of their examples
        self._index: Any = None
        self.is_reading = False

    def __len__(self) -> int:
        if self._read is not None:
            return len(self._read)
        length = None if is_endless(self._data) else length_of(self._data)
        if length is None:
            raise TypeError(f"{self.name} has no length")
        return min(length, 3)

    def __iter__(self) -> Iterator[Any]:
        if self._read is None:
            self.place, self.is_reading = f"a batch of {self.name} that was being read", True
            with left_as_found(self._data):
                self._read = [(batch, getattr(self._data, "example_index", None)) for batch in self._batches()]
            self.is_reading = False
        for number, (batch, index) in enumerate(self._read):
            self._index = index
            is_last = number == len(self._read) - 1 and not self.missed
            self.place = f"{'the last batch' if is_last else f'batch {number + 1}'} of {self.name}"
            yield _copy_of(batch)
        self.place = ""

    @property
    def example_index(self) -> Any:
        """The numbers of the examples of the batch that was given last, if the data number them."""
        if self._index is None:
            raise AttributeError(f"{self.name} does not number its examples")
        return self._index

    def _batches(self) -> Iterator[Any]:
        data = self._data
        if isinstance(data, (list, tuple)):
            yield from (data[number] for number in _chosen(len(data)))
        elif isinstance(data, Passes):
            yield from _by_position(data)
        elif type(data) is DataLoader and not isinstance(data.dataset, IterableDataset) and length_of(data) is not None:
            yield from _by_index(data)
        else:
            yield from self._by_reading_on()

    def _by_reading_on(self) -> Iterator[Any]:
        began, last, number = monotonic(), [], 0
        for number, batch in enumerate(self._data, start=1):
            if number <= 2:
                yield batch
                continue
            last = [batch]
            if is_endless(self._data):
                self.missed = f"{self.name} has no end"
                break
            if monotonic() - began > self._seconds:
                self.missed = f"the end of {self.name} was not reached in {self._seconds:g} s ({number} batches)"
                break
        yield from last


def _chosen(length: int) -> list[int]:
    return [number for number in range(length) if number < 2 or number == length - 1]


def _by_position(data: Passes) -> Iterator[Any]:
    """Read from their positions; ``left_as_found`` of the data puts these back."""
    state = data.state_dict()
    for first, count in ((0, 2), (len(data) - 1, 1))[: 2 if len(data) > 2 else 1]:
        data.load_state_dict({**state, "batches": first})
        yield from islice(data, count)


def _by_index(loader: DataLoader[Any]) -> Iterator[Any]:
    """Read with a loader like this one, whose workers collate, of the numbers that its sampler gives."""
    names = ("num_workers", "collate_fn", "pin_memory", "timeout", "worker_init_fn", "multiprocessing_context")
    given: dict[str, Any] = {name: getattr(loader, name) for name in (*names, "generator", "prefetch_factor")}
    numbers: Iterable[Any] = loader.sampler if loader.batch_sampler is None else loader.batch_sampler
    kept: list[Any] = []
    for one in islice(numbers, len(loader)):
        kept = [*kept[:2], one]  # the first two, and the last so far
    if loader.batch_sampler is None:
        return iter(DataLoader(loader.dataset, batch_size=None, sampler=kept, **given))
    return iter(DataLoader(loader.dataset, batch_sampler=kept, **given))


def _copy_of(batch: Any) -> Any:
    try:
        return copy.deepcopy(batch)
    except Exception:  # whatever an object in a batch raises; it is given as the data give it
        return batch
