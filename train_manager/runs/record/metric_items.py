"""What waits to be written into ``metrics.sqlite``, and what it is made of.

Scalars and the rows of batches are plain tuples, for there are many.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

from train_manager.loop.batch_losses import BatchRow

Scalar: TypeAlias = tuple[int, int, int, float, Any]
"""Number of the series, step, epoch, time, and the value: a number, or a tensor that is read as it is written."""

Row: TypeAlias = Mapping[str, Any]
"""A row of ``tm.history``."""


@dataclass(frozen=True)
class Begin:
    """A segment begins: the training goes on after ``from_step``, and the history is the one given.

    Attributes:
        from_step: the last step that counts; -1 if a training begins.
        time: seconds since 1970.
        history: the rows of each stage that are there already.
        goes_on_from: the run_id of a run of the training, whose later rows are deleted; if the file has none of it, a
            training begins. None if that is not known: a training of the same history goes on. If there is no history
            yet, later rows are superseded, and stay.
    """

    from_step: int
    time: float
    history: Mapping[str, Sequence[Row]]
    goes_on_from: str | None = None


@dataclass(frozen=True)
class HistoryRow:
    """A row of the history: it replaces the one that has its number; without one it comes last."""

    stage: str
    number: int | None
    row: Row
    time: float


class Blob(NamedTuple):
    """Numbers that are bytes in the file; they may be on a device until they are written.

    Attributes:
        kind: "f" (float32), "d" (float64) or "q" (int64).
        numbers: a tensor, or what ``array.array`` takes.
    """

    kind: str
    numbers: Any


class Labels(NamedTuple):
    """The names of the values of an array, written where they are not those of the row before."""

    names: tuple[str, ...] | None


@dataclass(frozen=True)
class Other:
    """A row of another table, or a scalar with a step of its own.

    Attributes:
        table: "scalars", "histograms", "texts", "files" or "arrays".
        series: the number of its series.
        values: the values of the columns after ``time``.
        own_step: the step that a hook has given.
    """

    table: str
    series: int
    step: int
    epoch: int
    time: float
    values: tuple[Any, ...]
    own_step: int | None = None


Item: TypeAlias = Scalar | Begin | HistoryRow | Other
"""What is written."""


@dataclass(frozen=True)
class Position:
    """The rows of batches that come after it are of this epoch, and of this phase ("" outside of phases)."""

    epoch: int
    phase: str


@dataclass(frozen=True)
class Rates:
    """The learning rates, by the names of their series, from the next row of a batch on."""

    rates: Mapping[str, Any]


Queued: TypeAlias = Item | BatchRow | Position | Rates
"""What the training appends."""
