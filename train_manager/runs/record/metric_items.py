"""The items that wait to be written into ``metrics.sqlite``, and their values.

Scalars and the rows of batches are plain tuples, because there are many of them.
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
    """A segment begins: the training continues after ``from_step``, and the history is the one given."""

    from_step: int  # the last step of earlier segments that counts; -1 if a training begins
    time: float  # seconds since 1970
    history: Mapping[str, Sequence[Row]]  # the rows of each stage that the run has at its beginning
    # The run_id of an earlier run of the training, whose later rows are deleted; if the file does not have that run, a
    # training begins. None if the run is not known: then a training in the file continues if its history is the same;
    # if there is no history to compare yet, its later rows are superseded, and stay in the file.
    goes_on_from: str | None = None


@dataclass(frozen=True)
class HistoryRow:
    """A row of the history, which replaces an earlier one or is added."""

    stage: str
    number: int | None  # its place among the rows of the stage, from which on rows are replaced; None adds it
    row: Row
    time: float


class Blob(NamedTuple):
    """Numbers that become bytes in the file as they are written."""

    kind: str  # "f" (float32), "d" (float64) or "q" (int64)
    numbers: Any  # a tensor, which may be on a device until then, or a sequence for `array.array`


class Labels(NamedTuple):
    """The names of the values of an array, written only if they differ from those of the row before."""

    names: tuple[str, ...] | None


@dataclass(frozen=True)
class Other:
    """A row of another table, or a scalar with a step of its own."""

    table: str  # "scalars", "histograms", "texts", "files" or "arrays"
    series: int  # the number of its series
    step: int
    epoch: int
    time: float
    values: tuple[Any, ...]  # the values of the columns after ``time``
    own_step: int | None = None  # the step that a hook has given in place of `step`


Item: TypeAlias = Scalar | Begin | HistoryRow | Other
"""What is written."""


@dataclass(frozen=True)
class Position:
    """The epoch and the phase of the rows of batches that come after it."""

    epoch: int
    phase: str  # "" outside of phases


@dataclass(frozen=True)
class Rates:
    """The learning rates, by the names of their series, from the next row of a batch on."""

    rates: Mapping[str, Any]


Queued: TypeAlias = Item | BatchRow | Position | Rates
"""What the training appends."""
