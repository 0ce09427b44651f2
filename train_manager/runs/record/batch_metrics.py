"""Metrics made of the rows of batches, in the thread that writes: the training itself only appends a row."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, final

from train_manager.loop.batch_losses import BatchRow
from train_manager.runs.record.metric_items import Begin, Item, Position, Queued, Rates, Scalar
from train_manager.runs.record.metric_schema import BATCHES, Series


@final
class BatchMetrics:
    """Makes metrics of rows: the loss, its terms, and the batch size and the learning rates if they have changed.

    The epoch, the phase, new rates and the beginning of a segment are items of their own, before the rows that they
    apply to.

    Args:
        number: returns the number of a series.
    """

    def __init__(self, number: Callable[[Series], int]) -> None:
        self._number = number
        self._position = Position(0, "")  # of the rows that come
        self._rates: Mapping[str, Any] = {}  # written with the next row, then empty
        self._batch_size: Any = None  # as it was written last in this segment
        self._numbers: dict[tuple[str, str], int] = {}  # of the series of this phase, by name and datasource

    def of(self, queued: Queued) -> Sequence[Item]:
        """Return the items to write for one item of the queue."""
        if isinstance(queued, tuple):  # a row of a batch has six values, a scalar five
            return self._of_row(queued) if len(queued) == 6 else (queued,)
        if isinstance(queued, Position):
            self._move(queued)
            return ()
        if isinstance(queued, Rates):
            self._rates = queued.rates
            return ()
        if isinstance(queued, Begin):
            self._batch_size = None  # the first row of the new segment writes it again
        return (queued,)

    def _move(self, position: Position) -> None:
        if position.phase != self._position.phase:
            self._numbers.clear()
        self._position = position

    def _of_row(self, row: BatchRow) -> list[Item]:
        loss, step, examples, time, datasource, parts = row
        source = str(datasource)  # a hook may have set it to any object, and an error here would end the thread
        values = {} if loss is None else {("loss", source): loss}
        values |= {(f"losses/{name}", source): part for name, part in (parts or {}).items()}
        if type(examples) is not int or examples != self._batch_size:  # a tensor counts as changed: it is not read here
            self._batch_size = examples
            values["batch_size", ""] = examples
        rates, self._rates = self._rates, {}
        values |= {(name, ""): rate for name, rate in rates.items()}
        return [self._scalar(name, step, time, value) for name, value in values.items()]

    def _scalar(self, name: tuple[str, str], step: int, time: float, value: Any) -> Scalar:
        if name not in self._numbers:
            self._numbers[name] = self._number(Series(name[0], BATCHES, name[1], self._position.phase))
        return self._numbers[name], step, self._position.epoch, time, value
