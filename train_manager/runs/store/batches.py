"""Metrics made of the rows of batches, in the thread that writes: the training itself only appends a row."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias, final

from train_manager.runs.store.rows import ITEMS, Begin, HistoryRow, Metric
from train_manager.runs.store.schema import BATCH_SIZE, BATCHES, Series


@dataclass(frozen=True)
class EpochAndPhase:
    """The epoch and the phase of the rows of batches that come after it."""

    epoch: int
    phase: str  # "" outside of phases


@dataclass(frozen=True)
class Rates:
    """The learning rates, by the names of their series, from the next row of a batch on."""

    rates: Mapping[str, Any]


@dataclass(frozen=True)
class Written:
    """A metric of a hook."""

    metric: Metric


Item: TypeAlias = Metric | Written | Begin | HistoryRow
"""What is written. A scalar is a plain tuple, because there are many of them; an item is a Written."""
BatchRow: TypeAlias = tuple[Any, int, Any, float, str, Mapping[str, Any] | None]
"""The same as in ``loop/batch_losses.py``, also with numbers in place of tensors."""
Queued: TypeAlias = BatchRow | EpochAndPhase | Rates | Written | Begin | HistoryRow
"""What the training appends."""


@final
class BatchMetrics:
    """Makes metrics of rows: the loss, its terms, and the batch size and the learning rates if they have changed.

    The epoch, the phase, new rates and the beginning of a part are items of their own, before the rows that they apply
    to.
    """

    def __init__(self) -> None:
        self._position = EpochAndPhase(0, "")  # of the rows that come
        self._rates: Mapping[str, Any] = {}  # written with the next row, then empty
        self._batch_size: Any = None  # as it was written last in this part
        self._series: dict[tuple[str, str], Series] = {}  # of this phase, by name and datasource

    def of(self, queued: Queued) -> Sequence[Item]:
        """Return the items to write for one item of the queue."""
        if isinstance(queued, tuple):
            return self._of_row(queued)
        if isinstance(queued, Written):
            return (queued if isinstance(queued.metric[5], ITEMS) else queued.metric,)
        if isinstance(queued, EpochAndPhase):
            self._move(queued)
            return ()
        if isinstance(queued, Rates):
            self._rates = queued.rates
            return ()
        if isinstance(queued, Begin):
            self._batch_size = None  # the first row of the new part writes it again
        return (queued,)

    def _of_row(self, row: BatchRow) -> list[Item]:
        loss, step, examples, time, datasource, parts = row
        source = str(datasource)  # a hook may have set it to any object, and an error here would end the thread
        values = {} if loss is None else {("loss", source): loss}
        values |= {(f"losses/{name}", source): part for name, part in (parts or {}).items()}
        if type(examples) is not int or examples != self._batch_size:  # a tensor counts as changed: it is not read here
            self._batch_size = examples
            values[BATCH_SIZE, ""] = examples
        rates, self._rates = self._rates, {}
        values |= {(name, ""): rate for name, rate in rates.items()}
        epoch = self._position.epoch
        return [(self._series_of(name), step, None, epoch, time, value) for name, value in values.items()]

    def _series_of(self, name: tuple[str, str]) -> Series:
        found = self._series.get(name)
        if found is None:
            found = self._series[name] = Series(name[0], BATCHES, name[1], self._position.phase)
        return found

    def _move(self, position: EpochAndPhase) -> None:
        if position.phase != self._position.phase:
            self._series = {}
        self._position = position
