"""The metrics of two runs, and where they differ, bit for bit, at the steps that both have."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, NamedTuple, final

import numpy as np

from train_manager.metrics.history_rows import is_loss
from train_manager.runs.store.reader import MetricReader
from train_manager.runs.store.schema import BATCHES, RANKS, Series

TIMES: Final = frozenset({"seconds", "second", "elapsed", "duration", "time", "times", "ms", "throughput"})
"""Words in the names of times and speeds, which differ from run to run."""

STEPWISE: Final = ("lr", "batch_size", RANKS)
"""Series of which the store has only the changes."""

MetricValues = Mapping[Series, tuple[Sequence[int], Sequence[float]]]
"""The steps and the values of each series, in the order in which they were measured."""


def metrics_of_run(train_dir: Path, run: str) -> MetricValues:
    """Return the metrics that count for a run, with those of the runs that it resumed."""
    found = MetricReader(train_dir).scalars(run=run)
    return {
        series: _changes(steps, values) if _is_stepwise(series) else (steps, values)
        for series, (steps, values, _) in found.items()
    }


def _is_stepwise(series: Series) -> bool:
    return series.stage == BATCHES and series.name.split("/")[0] in STEPWISE


def _changes(steps: Sequence[int], values: Sequence[float]) -> tuple[list[int], list[float]]:
    # A run that resumes begins with the value, whether it has changed or not.
    kept = [number for number, value in enumerate(values) if number == 0 or value != values[number - 1]]
    return [steps[number] for number in kept], [values[number] for number in kept]


@final
@dataclass(frozen=True)
class MetricDifference:
    """One value that differs."""

    step: int
    series: Series
    one: float
    other: float

    def by(self) -> float | None:
        """Return the distance, if both are numbers."""
        return None if np.isnan(self.one - self.other) else abs(self.one - self.other)


class Alone(NamedTuple):
    """Values of a series that only one run has."""

    number: int
    first: int  # the step of the first
    last: int  # the step of the last


def series_text(series: Series) -> str:
    """Return a series in words.

    >>> series_text(Series("loss", "eval", "valid")), series_text(Series("norm", phase="warm up"))
    ('loss of valid (eval)', 'norm, in phase warm up')
    """
    of = f" of {series.datasource}" if series.datasource else ""
    at = f" ({series.stage})" if series.stage else ""
    return f"{series.name}{of}{at}{f', in phase {series.phase}' if series.phase else ''}"


@final
@dataclass(frozen=True)
class MetricComparison:
    """The result of a comparison of the metrics of two runs.

    Attributes:
        losses: how many losses of batches were compared.
        metrics: how many other values.
        until: the step up to which they were.
        ends: the last step of each run.
        first: the first value that differs; None if all are identical.
        differing: in how many values each series differs, by its name.
        largest: the largest distance.
        only_in: the values of each series that only the first run has, and those that only the other has.
        left_out: series of times.
    """

    losses: int = 0
    metrics: int = 0
    until: int = 0
    ends: tuple[int, int] = (0, 0)
    first: MetricDifference | None = None
    differing: Mapping[Series, int] = field(default_factory=dict)
    largest: float = 0.0
    only_in: tuple[Mapping[Series, Alone], Mapping[Series, Alone]] = field(default_factory=lambda: ({}, {}))
    left_out: tuple[Series, ...] = ()

    @property
    def identical(self) -> bool:
        """Whether the other run has all that the first one has, the same to the bit."""
        return self.first is None and not self.only_in[0]


def compare_metrics(one: MetricValues, other: MetricValues, until: int | None = None) -> MetricComparison:
    """Compare two runs up to the last step that both have done, at each step that both have.

    >>> batches = Series("loss", "train_step_batch")
    >>> found = compare_metrics({batches: ([1, 2, 3], [0.5, 0.25, 0.1])}, {batches: ([1, 2], [0.5, 0.75])})
    >>> found.first, found.losses, found.until, found.ends
    (MetricDifference(step=2, series=Series(name='loss', stage='train_step_batch', datasource='', phase=''), one=0.25, \
other=0.75), 2, 2, (3, 2))

    Nan is equal to nan, and 0.0 is not -0.0. Where a run is cut short, metrics at its last step that only one of the
    two has are not counted: an epoch that was left in the middle, or an evaluation that was not reached.

    Args:
        one: the metrics of a run.
        other: the metrics of another run.
        until: a step after which nothing is compared.
    """
    # Series of seconds and speeds are reported as left out.
    left_out = tuple(sorted(series for series in {**one, **other} if is_time(series)))
    ends = last_step(one), last_step(other)
    end = min(*ends, *([] if until is None else [until]))
    pairs = {
        series: _Pair(series, _rows(one, series, end), _rows(other, series, end))
        for series in sorted({*one, *other} - {*left_out})
    }
    losses = sum(len(pair.steps) for series, pair in pairs.items() if series.stage == BATCHES and is_loss(series.name))
    differing = [pair for pair in pairs.values() if pair.differs.any()]
    # If a run was longer, the end of the comparison may be within an epoch of it.
    alone = [pair.alone(end if max(ends) > end else None) for pair in pairs.values()]
    return MetricComparison(
        losses=losses,
        metrics=sum(len(pair.steps) for pair in pairs.values()) - losses,
        until=end,
        ends=ends,
        # Of one step, the loss of a batch is named first: the other metrics follow from it.
        first=min(
            (pair.first() for pair in differing), key=lambda one: (one.step, one.series.stage != BATCHES), default=None
        ),
        differing={pair.series: int(pair.differs.sum()) for pair in differing},
        largest=max((pair.largest() for pair in differing), default=0.0),
        only_in=(_of_some(pairs, (one for one, _ in alone)), _of_some(pairs, (other for _, other in alone))),
        left_out=left_out,
    )


def _of_some(pairs: Iterable[Series], alone: Iterable[Alone | None]) -> dict[Series, Alone]:
    return {series: found for series, found in zip(pairs, alone, strict=True) if found is not None}


def is_time(name: Series) -> bool:
    """Return whether a series holds times or speeds.

    >>> is_time(Series("seconds")), is_time(Series("samples_per_second")), is_time(Series("time_embedding_norm"))
    (True, True, False)
    """
    words = name.name.replace("/", "_").replace(" ", "_").lower().split("_")
    return words[-1] in TIMES or words[0] in ("seconds", "elapsed")


def last_step(metrics: MetricValues) -> int:
    """Return the last step of the batches; without batches, that of any series."""
    ends = [(name.stage == BATCHES, max(steps)) for name, (steps, _) in metrics.items() if len(steps)]
    return int(max((end for of_batches, end in ends if of_batches), default=max((end for _, end in ends), default=0)))


class _Rows(NamedTuple):
    steps: Any  # array of int64, sorted
    values: Any  # array of float64, in which the values of the store are exact


def _rows(metrics: MetricValues, name: Series, end: int) -> _Rows:
    """Return the rows of a series up to a step, sorted by step and in the order in which they were measured."""
    steps, values = metrics.get(name, ((), ()))
    rows = _Rows(np.asarray(steps, np.int64), np.asarray(values, np.float64))
    order = np.argsort(rows.steps, kind="stable")[: int((rows.steps <= end).sum())]
    return _Rows(rows.steps[order], rows.values[order])


@final
class _Pair:
    """The rows of a series in two runs, side by side where both have a step."""

    def __init__(self, series: Series, one: _Rows, other: _Rows) -> None:
        _, of_one, of_other = np.intersect1d(
            _numbered(one.steps), _numbered(other.steps), assume_unique=True, return_indices=True
        )
        self.series = series
        self.steps, self.one, self.other = one.steps[of_one], one.values[of_one], other.values[of_other]
        self.differs = ~_same(self.one, self.other)
        self._alone = np.delete(one.steps, of_one), np.delete(other.steps, of_other)

    def first(self) -> MetricDifference:
        """Return the first difference; there is one."""
        at = int(self.differs.argmax())
        return MetricDifference(int(self.steps[at]), self.series, float(self.one[at]), float(self.other[at]))

    def largest(self) -> float:
        """Return the largest distance of two numbers; 0.0 if there is none."""
        by = abs(self.one[self.differs] - self.other[self.differs])
        return float(by[~np.isnan(by)].max(initial=0.0))

    def alone(self, cut_at: int | None) -> tuple[Alone | None, Alone | None]:
        """Return the values that only one of the runs has; of a run that was cut, not those of its last epoch."""
        steps = self._alone
        if cut_at is not None and self.series.stage != BATCHES:
            steps = steps[0][steps[0] < cut_at], steps[1][steps[1] < cut_at]
        one, other = (Alone(len(at), int(at[0]), int(at[-1])) if len(at) else None for at in steps)
        return one, other


def _numbered(steps: Any) -> Any:
    # A series may have several values at a step, such as two evaluations: the n-th of one run is that of the other.
    place = np.arange(len(steps)) - np.searchsorted(steps, steps)
    return (steps << 20) + place


def _same(one: Any, other: Any) -> Any:
    # `==` takes 0.0 for -0.0, and nan for different from itself.
    return ((one == other) & (np.signbit(one) == np.signbit(other))) | ((one != one) & (other != other))
