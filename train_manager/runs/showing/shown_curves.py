"""The curves of runs by plot; the training, each set and each loss term has a colour of its own."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, final

from train_manager.metrics.history_rows import is_loss
from train_manager.reporting.loss_figure import ROWS_OF_RANK_0
from train_manager.runs.record.metric_schema import BATCHES, EPOCHS, EVALUATIONS, Series
from train_manager.runs.showing.clocks import Knots, epoch_knots, example_knots, fewer, second_knots
from train_manager.runs.showing.stored_metrics import StoredMetrics, Stretches

TRAINING: Final = "training"
DIGITS: Final = 6  # significant digits of a value on the page


@final
@dataclass
class Curve:
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
    depth: float | None = None  # from 0 for the first layer to 1 for the last one; None if it is not of a layer


@final
@dataclass
class Plot:
    """The curves of one metric."""

    name: str
    may_be_log: bool  # whether the page may choose a log scale, which it does if the values are far apart
    curves: list[Curve] = field(default_factory=list)
    section: str = "plots"  # of the page


def shown_curves(stored: Sequence[StoredMetrics]) -> list[Plot]:
    """Return the plots of the stored metrics of runs."""
    plots: dict[str, Plot] = {}
    for number, metrics in enumerate(stored):
        for series, stretches in _in_order(metrics):
            name = _plot_of(series)
            plot = plots.setdefault(name, Plot(name, is_loss(series.name)))
            plot.curves.append(_curve(number, series, stretches, metrics))
    return list(plots.values())


def _in_order(metrics: StoredMetrics) -> list[tuple[Series, Stretches]]:
    """Return the series to draw: losses first, rates last."""
    # A metric of batches is drawn from them: the means of its epochs would be a second, coarser curve of the same.
    of_batches = {(series.phase, series.name) for series in metrics.series if series.stage == BATCHES}
    rank = {"loss": 0, "lr": 3}
    drawn = [
        (series, found)
        for series, found in metrics.series.items()
        if not (series.stage == EPOCHS and (series.phase, series.name) in of_batches)
    ]
    stages = (BATCHES, EPOCHS, EVALUATIONS, "")

    def place(item: tuple[Series, Stretches]) -> tuple[int, int]:
        series = item[0]
        return rank.get(_plot_of(series), 1 if series.stage else 2), stages.index(series.stage)

    return sorted(drawn, key=place)


def _plot_of(series: Series) -> str:
    name = series.name.rpartition("/")[0] or series.name
    return f"{series.phase}/{name}" if series.phase else name


def _curve(run: int, series: Series, found: Stretches, metrics: StoredMetrics) -> Curve:
    name, part = series.name, series.name.rpartition("/")[2] if "/" in series.name else ""
    kind = "rows" if series.stage in (EPOCHS, EVALUATIONS) else "noisy"
    if series.stage == EVALUATIONS:
        words, key = [series.datasource, part], f"{series.datasource} {part}".strip()
    elif name == "lr" or name.startswith("lr/"):
        return _hold_last(Curve(run, part or name, part or TRAINING, "steps", found.steps, found.means), metrics.last)
    elif series.stage == BATCHES:
        # The dataset is named only if there are batches of several.
        several = sum((one.name, one.stage) == (name, BATCHES) for one in metrics.series) > 1
        words = [part or TRAINING, series.datasource if several else "", f"({ROWS_OF_RANK_0})" * metrics.has_ranks]
        key = part or (series.datasource if several else TRAINING)
    else:
        words = [part or (TRAINING if series.stage else name), series.datasource]
        key = part or series.datasource or TRAINING
    shown = Curve(run, " ".join(filter(None, words)), key, kind, found.steps, short(found.means))
    if found.means and not math.isfinite(found.means[-1]):
        shown.end = f"{found.means[-1]} at step {found.steps[-1]:,.0f}"
    if found.lows != found.means or found.highs != found.means:
        shown.low, shown.high = short(found.lows), short(found.highs)
    return shown


def _hold_last(curve: Curve, last: float) -> Curve:
    """Return a curve whose last value holds until the run's end."""
    values = [value for value in curve.y if value is not None]
    curve.x, curve.y = [*curve.x, max(last, curve.x[-1])], short([*values, values[-1]])
    return curve


def clock(metrics: StoredMetrics) -> dict[str, Knots]:
    """Return the other axes of a run: epochs, examples and seconds at steps."""
    last = metrics.last
    knots = {
        "epoch": epoch_knots(metrics.epochs, last) if metrics.epochs else [],
        "examples": example_knots(metrics.sizes, last),
        "time": second_knots(metrics.times, metrics.pauses),
    }
    known = {name: [knot for knot in found if all(map(math.isfinite, knot))] for name, found in knots.items()}
    return {
        name: [(_digits(x), _digits(y)) for x, y in fewer(found)] for name, found in known.items() if len(found) > 1
    }


def short(values: Iterable[float], digits: int = DIGITS) -> list[float | None]:
    """Return values with few digits; None in place of nan and infinity, which JSON lacks."""
    return [float(f"{value:.{digits}g}") if math.isfinite(value) else None for value in values]


def _digits(value: float) -> float:
    return float(f"{value:.9g}")


def as_json(plots: Sequence[Plot]) -> list[dict[str, Any]]:
    """Return plots as plain data, with a number for each colour."""
    keys: dict[str, int] = {TRAINING: -1}
    for plot in plots:
        for curve in plot.curves:
            keys.setdefault(curve.key, len(keys) - 1)
    return [
        {**vars(plot), "curves": [{**vars(curve), "key": keys[curve.key]} for curve in plot.curves]} for plot in plots
    ]
