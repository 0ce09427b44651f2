"""The first two batches of data and the last one, in place of all of them."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator
from itertools import islice
from time import monotonic
from typing import Any, Final, final

from torch.utils.data import DataLoader, IterableDataset

from train_manager.data.iteration import is_endless, length_of
from train_manager.data.one_pass import left_as_found
from train_manager.data.passes import Passes

SECONDS: Final = 30.0
"""So long is read on for the last batch, where it cannot be asked for by its number."""


@final
class FewBatches:
    """The first two batches of data and the last one, pass after pass.

    >>> few = FewBatches([10, 11, 12, 13], "train_data")
    >>> len(few), [(batch, few.place) for batch in few][-1]
    (3, (13, 'the last batch of train_data'))

    Args:
        data: what they are read of, at once; it is left where it was.
        name: what it is called.
        seconds: how long to read on for the last batch.

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
            few = _by_number(data)
            for count, batch in enumerate(data if few is None else few, start=1):
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
    """Return the batches, where data can be asked for them by their numbers."""
    if isinstance(data, Passes):
        return _by_position(data)
    if type(data) is not DataLoader or isinstance(data.dataset, IterableDataset) or length_of(data) is None:
        return None
    sampler = "sampler" if data.batch_sampler is None else "batch_sampler"
    numbers = list(islice(getattr(data, sampler), len(data)))
    loader = copy.copy(data)
    vars(loader).update({sampler: _ends_of(numbers), "_iterator": None})  # with workers of its own
    return loader


def _by_position(data: Passes) -> Iterator[Any]:
    state = data.state_dict()
    for number in _ends_of(range(len(data))):
        data.load_state_dict({**state, "batches": number})
        yield from islice(data, 1)


def _ends_of(numbers: Any) -> list[Any]:
    return [*numbers[:2], *numbers[2:][-1:]]
