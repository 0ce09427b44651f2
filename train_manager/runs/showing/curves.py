"""The curves of runs by plot; the training, each set and each loss term has a colour of its own."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, final

import numpy as np

from train_manager.metrics.history_rows import is_loss
from train_manager.reporting.loss_panels import BATCH_LOSS, EPOCH_LOSS, ROWS_OF_RANK_0
from train_manager.runs.comparing.measured import Measured, is_setting, name_of
from train_manager.runs.record.run_summary import Best
from train_manager.runs.store.curves import Curve
from train_manager.runs.store.schema import BATCH_SIZE, BATCHES, EPOCHS, EVALUATIONS, RANKS, Series

TRAINING: Final = "training"
LOSSES: Final = {BATCHES: BATCH_LOSS, EPOCHS: EPOCH_LOSS}
DIGITS: Final = 6  # significant digits of a value on the page


@final
@dataclass
class DrawnCurve:
    """A curve, as the page gets it."""

    run: int  # number of its run
    name: str  # in the legend
    key: str  # curves with the same key have the same colour in all plots; "training" is grey
    kind: str  # "steps" if a value holds until the next one, "rows" of epochs and evaluations, else "noisy"
    x: Sequence[float]  # steps
    y: Sequence[float | None]  # values, or the means of stretches; None is a gap
    low: Sequence[float | None] = ()  # the lowest values of stretches; empty if each stretch is a single step
    high: Sequence[float | None] = ()  # the highest values of stretches
    end: str = ""  # the last value and its step in words, if the value is not a number that can be drawn
    root: float | None = None  # the divisor that makes a root mean square of a norm; None if it is not a norm
    value: str = ""  # what its values are, if its name does not tell: "batch loss"
    best: float | None = None  # the step of the best value; None if the value does not decide which epoch is best
    depth: float | None = None  # from 0 for the first layer to 1 for the last one; None if it is not of a layer


@final
@dataclass
class Plot:
    """The curves of one metric."""

    name: str
    may_be_log: bool  # whether the page may choose a log scale, which it does if the values are far apart
    curves: list[DrawnCurve] = field(default_factory=list)
    section: str = "plots"  # of the page


def shown_curves(runs: Sequence[Measured], best: Sequence[Best | None] = ()) -> list[Plot]:
    """Return the plots of what runs have measured.

    Args:
        runs: what they have measured.
        best: of each run its best evaluation, which is marked.
    """
    plots: dict[str, Plot] = {}
    for number, measured in enumerate(runs):
        for series, curve in _in_order(measured.curves):
            name = _plot_of(series)
            plot = plots.setdefault(name, Plot(name, is_loss(series.name)))
            drawn = _drawn(number, series, curve, measured)
            decides = best[number] if number < len(best) else None
            if decides and series.stage == EVALUATIONS and name_of(series) == decides.metric:
                drawn.best = decides.step
            plot.curves.append(drawn)
    return list(plots.values())


def _in_order(curves: Mapping[Series, Curve]) -> list[tuple[Series, Curve]]:
    """Return the series to draw: losses first, rates last."""
    # A metric of batches is drawn from them: the means of its epochs would be a second, coarser curve of the same.
    of_batches = {(series.phase, series.name) for series in curves if series.stage == BATCHES}
    rank = {"loss": 0, "lr": 3}
    drawn = [
        (series, curve)
        for series, curve in curves.items()
        if not (series.stage == EPOCHS and (series.phase, series.name) in of_batches)
        and not (series.stage == BATCHES and is_setting(series.name, BATCH_SIZE, RANKS))
    ]
    stages = (BATCHES, EPOCHS, EVALUATIONS, "")

    def place(item: tuple[Series, Curve]) -> tuple[int, int]:
        series = item[0]
        return rank.get(_plot_of(series), 1 if series.stage else 2), stages.index(series.stage)

    return sorted(drawn, key=place)


def _plot_of(series: Series) -> str:
    name = series.name.rpartition("/")[0] or series.name
    return f"{series.phase}/{name}" if series.phase else name


def _drawn(run: int, series: Series, curve: Curve, measured: Measured) -> DrawnCurve:
    name, part = series.name, series.name.rpartition("/")[2] if "/" in series.name else ""
    kind = "rows" if series.stage in (EPOCHS, EVALUATIONS) else "noisy"
    if series.stage == EVALUATIONS:
        words, key = [series.datasource, part], f"{series.datasource} {part}".strip()
    elif name == "lr" or name.startswith("lr/"):
        # Its last value holds until the run's end.
        x, y = [*curve.steps, max(measured.last, curve.steps[-1])], [*curve.mean, curve.mean[-1]]
        shown = DrawnCurve(run, part or name, part or TRAINING, "steps", whole(x), rounded(y))
        shown.end = f"{y[0]:g}, constant" if len({*y}) == 1 else ""
        return shown
    elif series.stage == BATCHES:
        # The dataset is named only if there are batches of several.
        several = sum((one.name, one.stage) == (name, BATCHES) for one in measured.curves) > 1
        words = [part or TRAINING, series.datasource if several else "", f"({ROWS_OF_RANK_0})" * measured.has_ranks]
        key = part or (series.datasource if several else TRAINING)
    else:
        words = [part or (TRAINING if series.stage else name), series.datasource]
        key = part or series.datasource or TRAINING
    shown = DrawnCurve(run, " ".join(filter(None, words)), key, kind, whole(curve.steps), rounded(curve.mean))
    shown.value = LOSSES.get(series.stage, "") if is_loss(name) else ""
    if not math.isfinite(curve.mean[-1]):
        shown.end = f"{curve.mean[-1]} at step {curve.steps[-1]:,.0f}"
    if has_band(curve):
        shown.low, shown.high = rounded(curve.low), rounded(curve.high)
    return shown


def has_band(curve: Curve) -> bool:
    """Return whether a curve joins several values somewhere, so that it has a band around it."""
    return not all(np.array_equal(ends, curve.mean, equal_nan=True) for ends in (curve.low, curve.high))


def whole(steps: Iterable[float]) -> list[float]:
    """Return steps, those that are whole numbers as such: they are shorter on a page.

    >>> whole([1.0, 2.5])
    [1, 2.5]
    """
    return [int(step) if float(step).is_integer() else float(step) for step in steps]


def rounded(values: Iterable[float], digits: int = DIGITS) -> list[float | None]:
    """Return values with few digits; None in place of nan and infinity, which JSON lacks."""
    return [float(f"{value:.{digits}g}") if math.isfinite(value) else None for value in values]


def as_json(plots: Sequence[Plot]) -> list[dict[str, Any]]:
    """Return plots as plain data, with a number for each colour."""
    keys: dict[str, int] = {TRAINING: -1}
    for plot in plots:
        for curve in plot.curves:
            keys.setdefault(curve.key, len(keys) - 1)
    return [
        {**vars(plot), "curves": [{**vars(curve), "key": keys[curve.key]} for curve in plot.curves]} for plot in plots
    ]
