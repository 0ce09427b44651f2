"""The first two batches of data and the last one, in place of all of them."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator
from itertools import islice
from time import monotonic
from typing import Any, Final, final

from torch.utils.data import DataLoader, IterableDataset

from train_manager.data.loader_position import left_as_found
from train_manager.data.passes import Passes
from train_manager.data.readable import is_endless, length_of

SECONDS: Final = 30.0
"""The longest time to read all batches for the last one, where the data give no batch by its number."""


@final
class FewBatches:
    """The first two batches of data and the last one, pass after pass.

    >>> few = FewBatches([10, 11, 12, 13], "train_data")
    >>> len(few), [(batch, few.place) for batch in few][-1]
    (3, (13, 'the last batch of train_data'))

    Args:
        data: the data, which are read at once, and left where they were.
        name: the name of the data in messages.
        seconds: the longest time to read on for the last batch.

    Attributes:
        batches: all of them.
        example_index: the numbers of the examples in the batch that was given last; None if the data have none.
        place: the batch that was given last, in words; empty between two passes.
        missed: why the last batch is not among them; empty if it is.
    """

    def __init__(self, data: Iterable[Any], name: str, seconds: float = SECONDS) -> None:
        self.name, self.place, self.missed = name, "", ""
        self.batches: list[Any] = []
        self._numbers: list[Any] = []
        ends = monotonic() + seconds
        with left_as_found(data):
            # With a DataLoader of a sized dataset only three batches are loaded; other data must be read to their end.
            few = _by_number(data)
            for count, batch in enumerate(data if few is None else few, start=1):
                # The third entry is replaced by each later batch.
                self.batches = [*self.batches[:2], batch]
                self._numbers = [*self._numbers[:2], getattr(data, "example_index", None)]
                if few is None and count > 2 and (is_endless(data) or monotonic() > ends):
                    late = f"the end of {name} was not reached in {seconds:g} s ({count} batches)"
                    self.missed = f"{name} has no end" if is_endless(data) else late
                    break
        self.example_index = next(iter(self._numbers), None)

    def __len__(self) -> int:
        return len(self.batches)

    def __iter__(self) -> Iterator[Any]:
        for number, batch in enumerate(self.batches, start=1):
            self.example_index = self._numbers[number - 1]
            is_last = number == len(self) and not self.missed
            self.place = f"{'the last batch' if is_last else f'batch {number}'} of {self.name}"
            yield batch
        self.place = ""


def _by_number(data: Any) -> Iterable[Any] | None:
    """Return the first two batches and the last, read by their numbers; None if the data have no numbers."""
    if isinstance(data, Passes):
        return _by_position(data)
    if type(data) is not DataLoader or isinstance(data.dataset, IterableDataset) or length_of(data) is None:
        return None
    sampler = "sampler" if data.batch_sampler is None else "batch_sampler"
    # The sampler is asked for all numbers, which is cheap: only loading the examples costs time.
    numbers = list(islice(getattr(data, sampler), len(data)))
    loader = copy.copy(data)
    # Without the iterator the copy starts workers of its own, and leaves those of the original alone.
    vars(loader).update({sampler: _ends_of(numbers), "_iterator": None})
    return loader


def _by_position(data: Passes) -> Iterator[Any]:
    state = data.state_dict()
    for number in _ends_of(range(len(data))):
        data.load_state_dict({**state, "batches": number})
        yield from islice(data, 1)


def _ends_of(numbers: Any) -> list[Any]:
    return [*numbers[:2], *numbers[2:][-1:]]
