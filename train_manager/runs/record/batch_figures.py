"""Figures made of the rows of batches, in the thread that writes: the training itself only appends a row."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, final

from train_manager.loop.batch_losses import BatchRow
from train_manager.runs.record.metric_items import Begin, Item, Position, Queued, Rates, Scalar
from train_manager.runs.record.metric_schema import BATCHES, Series


@final
class BatchFigures:
    """Makes figures of rows: the loss, its parts, and the batch size and the learning rates if they have changed.

    What a row does not tell has come before it: the epoch and the phase, new rates, the beginning of a segment.

    Args:
        number: returns the number of a series.
    """

    def __init__(self, number: Callable[[Series], int]) -> None:
        self._number = number
        self._position = Position(0, "")
        self._rates: Mapping[str, Any] = {}
        self._batch_size: Any = None
        self._numbers: dict[tuple[str, str], int] = {}  # of the series of the phase, by name and datasource

    def of(self, queued: Queued) -> Sequence[Item]:
        """Return what is written of one thing that the training has appended."""
        if isinstance(queued, tuple):  # a row, or a scalar, which is shorter
            return self._of_row(queued) if len(queued) == 6 else (queued,)
        if isinstance(queued, Position):
            self._move(queued)
            return ()
        if isinstance(queued, Rates):
            self._rates = queued.rates
            return ()
        if isinstance(queued, Begin):
            self._batch_size = None  # so that it is written for the new segment
        return (queued,)

    def _move(self, position: Position) -> None:
        if position.phase != self._position.phase:
            self._numbers.clear()
        self._position = position

    def _of_row(self, row: BatchRow) -> list[Item]:
        loss, step, examples, time, datasource, parts = row
        source = str(datasource)  # whatever a hook has left there: an error here would end the thread
        values = {} if loss is None else {("loss", source): loss}
        values |= {(f"losses/{name}", source): part for name, part in (parts or {}).items()}
        if type(examples) is not int or examples != self._batch_size:  # a tensor is not read here
            self._batch_size = examples
            values["batch_size", ""] = examples
        rates, self._rates = self._rates, {}
        values |= {(name, ""): rate for name, rate in rates.items()}
        return [self._scalar(name, step, time, value) for name, value in values.items()]

    def _scalar(self, name: tuple[str, str], step: int, time: float, value: Any) -> Scalar:
        if name not in self._numbers:
            self._numbers[name] = self._number(Series(name[0], BATCHES, name[1], self._position.phase))
        return self._numbers[name], step, self._position.epoch, time, value
