"""Where the metrics of two runs differ, bit for bit: step by step, whatever a store or a file holds them in."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import zip_longest
from operator import attrgetter
from typing import Any, Final, NamedTuple, final

import numpy as np

from train_manager.metrics.history_rows import is_loss
from train_manager.runs.record.metric_schema import BATCHES, Series

TIMES: Final = frozenset({"seconds", "second", "elapsed", "duration", "time", "times", "ms", "throughput"})
"""Words in the names of times and speeds, which differ from run to run."""


MetricValues = Mapping[Series, tuple[Sequence[int], Sequence[float]]]
"""The steps and the values of each series, in the order in which they were measured."""


@final
@dataclass(frozen=True)
class MetricDifference:
    """One value that differs; None if a run does not have it."""

    step: int
    series: Series
    one: float | None
    other: float | None

    def by(self) -> float | None:
        """Return the distance, if both are numbers."""
        if self.one is None or self.other is None or np.isnan(self.one - self.other):
            return None
        return abs(self.one - self.other)


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
        only_in: series of one run that the other does not have at all, of each.
        left_out: series of times.
    """

    losses: int = 0
    metrics: int = 0
    until: int = 0
    ends: tuple[int, int] = (0, 0)
    first: MetricDifference | None = None
    differing: Mapping[Series, int] = field(default_factory=dict)
    largest: float = 0.0
    only_in: tuple[tuple[Series, ...], tuple[Series, ...]] = ((), ())
    left_out: tuple[Series, ...] = ()

    figures = property(attrgetter("metrics"), doc="The old name of ``metrics``.")

    @property
    def identical(self) -> bool:
        """Whether the other run has all that the first one has, the same to the bit."""
        return self.first is None and not self.only_in[0]


def compare_metrics(one: MetricValues, other: MetricValues, until: int | None = None) -> MetricComparison:
    """Compare two runs up to the last step that both have done.

    >>> batches = Series("loss", "train_step_batch")
    >>> found = compare_metrics({batches: ([1, 2, 3], [0.5, 0.25, 0.1])}, {batches: ([1, 2], [0.5, 0.75])})
    >>> found.first, found.losses, found.until, found.ends
    (MetricDifference(step=2, series=Series(name='loss', stage='train_step_batch', datasource='', phase=''), one=0.25, \
other=0.75), 2, 2, (3, 2))

    Nan is equal to nan, and 0.0 is not -0.0. Where a run is cut short, metrics at its last step that only one of the
    two has are not compared: an epoch that was left in the middle, or an evaluation that was not reached.

    Args:
        one: the metrics of a run.
        other: the metrics of another run.
        until: a step after which nothing is compared.
    """
    # Series of seconds and speeds are reported as left out.
    left_out = tuple(sorted(name for name in {**one, **other} if is_time(name)))
    ends = _last_step(one), _last_step(other)
    end = min(*ends, *([] if until is None else [until]))
    # One of the runs was longer: the end of the comparison may be within an epoch of it.
    is_cut = max(ends) > end
    found: list[MetricDifference] = []
    counts = [0, 0]
    only_in: tuple[list[Series], list[Series]] = [], []
    for name in sorted({*one, *other} - {*left_out}):
        rows = _rows(one, name, end), _rows(other, name, end)
        if is_cut and name.stage != BATCHES:
            rows = _without_one_sided_end(*rows, end)
        sizes = len(rows[0].steps), len(rows[1].steps)
        if min(sizes):
            # counts[0] is of the losses of batches, counts[1] of all other metrics; a value that one lacks counts too.
            counts[not (is_loss(name.name) and name.stage == BATCHES)] += _count(*rows)
            found += _differences(name, *rows)
        elif max(sizes):
            only_in[not sizes[0]].append(name)
    return MetricComparison(
        losses=counts[0],
        metrics=counts[1],
        until=end,
        ends=ends,
        # Of one step, the loss of a batch is named first: the other metrics follow from it.
        first=min(found, key=lambda one: (one.step, one.series.stage != BATCHES), default=None),
        differing=Counter(one.series for one in found),
        largest=max((by for one in found if (by := one.by()) is not None), default=0.0),
        only_in=(tuple(only_in[0]), tuple(only_in[1])),
        left_out=left_out,
    )


def is_time(name: Series) -> bool:
    """Return whether a series holds times or speeds.

    >>> is_time(Series("seconds")), is_time(Series("samples_per_second")), is_time(Series("time_embedding_norm"))
    (True, True, False)
    """
    words = name.name.replace("/", "_").replace(" ", "_").lower().split("_")
    return words[-1] in TIMES or words[0] in ("seconds", "elapsed")


def _last_step(metrics: MetricValues) -> int:
    """Return the last step of the batches; without batches, that of any series."""
    ends = [(name.stage == BATCHES, max(steps)) for name, (steps, _) in metrics.items() if len(steps)]
    return int(max((end for of_batches, end in ends if of_batches), default=max((end for _, end in ends), default=0)))


class _Rows(NamedTuple):
    steps: Any  # array of int64
    values: Any  # array of float64, in which the values of the store are exact

    def upto(self, count: int) -> _Rows:
        return _Rows(self.steps[:count], self.values[:count])


def _rows(metrics: MetricValues, name: Series, end: int) -> _Rows:
    """Return the rows of a series up to a step, sorted by step and in the order in which they were measured."""
    steps, values = metrics.get(name, ((), ()))
    rows = _Rows(np.asarray(steps, np.int64), np.asarray(values, np.float64))
    order = np.argsort(rows.steps, kind="stable")
    return _Rows(rows.steps[order], rows.values[order]).upto(int((rows.steps <= end).sum()))


def _without_one_sided_end(one: _Rows, other: _Rows, end: int) -> tuple[_Rows, _Rows]:
    # Of the rows at the last step, as many are kept as both runs have.
    at_end = int((one.steps == end).sum()), int((other.steps == end).sum())
    both = min(at_end)
    return one.upto(len(one.steps) - at_end[0] + both), other.upto(len(other.steps) - at_end[1] + both)


def _count(one: _Rows, other: _Rows) -> int:
    if np.array_equal(one.steps, other.steps):
        return len(one.steps)
    return (Counter(one.steps.tolist()) | Counter(other.steps.tolist())).total()


def _differences(name: Series, one: _Rows, other: _Rows) -> Iterator[MetricDifference]:
    if np.array_equal(one.steps, other.steps):  # the usual case, without a loop over perhaps millions of steps
        for number in np.flatnonzero(~_same(one.values, other.values)):
            yield MetricDifference(int(one.steps[number]), name, float(one.values[number]), float(other.values[number]))
        return
    # The runs have different steps: values are compared step by step, and a missing value is a difference.
    by_step = _by_step(one), _by_step(other)
    for step in sorted({*by_step[0], *by_step[1]}):
        for values in zip_longest(*(of_run.get(step, []) for of_run in by_step)):
            if None in values or not _same(*map(np.float64, values)):
                yield MetricDifference(step, name, *values)


def _same(one: Any, other: Any) -> Any:
    # `==` takes 0.0 for -0.0, and nan for different from itself.
    return ((one == other) & (np.signbit(one) == np.signbit(other))) | ((one != one) & (other != other))


def _by_step(rows: _Rows) -> dict[int, list[float]]:
    found: dict[int, list[float]] = {}
    for step, value in zip(rows.steps.tolist(), rows.values.tolist(), strict=True):
        found.setdefault(step, []).append(value)
    return found
