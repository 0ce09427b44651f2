"""The curves of runs, by the plot that they belong to: the training, each set and each part in a colour of its own."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, final

from train_manager.metrics.history_rows import is_loss
from train_manager.runs.record.metric_schema import BATCHES, EPOCHS, EVALUATIONS, Series
from train_manager.runs.showing.clocks import Knots, epoch_knots, example_knots, fewer, second_knots
from train_manager.runs.showing.stored_figures import Figures, Stretches

TRAINING: Final = "training"
DIGITS: Final = 6


@final
@dataclass
class Curve:
    """A curve, as the page gets it.

    Attributes:
        run: the number of its run.
        name: in the legend.
        key: what has the same key has the same colour everywhere; "training" is grey.
        kind: "steps" if a value holds until the next one, "rows" of epochs and evaluations, else "noisy".
        x: steps.
        y: values, or the means of stretches; None is a gap.
        low: the lowest values of stretches; none if all are of a single step.
        high: the highest ones.
        end: in words, where it ends, if the last value is not a number that can be drawn.
        root: what a norm is divided by for the root mean square; None if it is not a norm.
        depth: from 0 for the first layer to 1 for the last one; None if it is not of a layer.
    """

    run: int
    name: str
    key: str
    kind: str
    x: Sequence[float]
    y: Sequence[float | None]
    low: Sequence[float | None] = ()
    high: Sequence[float | None] = ()
    end: str = ""
    root: float | None = None
    depth: float | None = None


@final
@dataclass
class Plot:
    """Curves of one figure; ``may_be_log`` if a log scale serves it where values are far apart; and where it stands."""

    name: str
    may_be_log: bool
    curves: list[Curve] = field(default_factory=list)
    section: str = "plots"


def shown_curves(stored: Sequence[Figures]) -> list[Plot]:
    """Return the plots of what runs have stored."""
    plots: dict[str, Plot] = {}
    for number, figures in enumerate(stored):
        for series, stretches in _in_order(figures):
            name = _plot_of(series)
            plot = plots.setdefault(name, Plot(name, is_loss(series.name)))
            plot.curves.append(_curve(number, series, stretches, figures))
    return list(plots.values())


def _in_order(figures: Figures) -> list[tuple[Series, Stretches]]:
    """Return what is drawn: losses first, rates last; of what batches have, not the means of epochs too."""
    of_batches = {(series.phase, series.name) for series in figures.series if series.stage == BATCHES}
    rank = {"loss": 0, "lr": 3}
    drawn = [
        (series, found)
        for series, found in figures.series.items()
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


def _curve(run: int, series: Series, found: Stretches, figures: Figures) -> Curve:
    name, part = series.name, series.name.rpartition("/")[2] if "/" in series.name else ""
    kind = "rows" if series.stage in (EPOCHS, EVALUATIONS) else "noisy"
    if series.stage == EVALUATIONS:
        words, key = [series.datasource, part], f"{series.datasource} {part}".strip()
    elif name == "lr" or name.startswith("lr/"):
        return _held(Curve(run, part or name, part or TRAINING, "steps", found.steps, found.means), figures.last)
    elif series.stage == BATCHES:
        several = sum((one.name, one.stage) == (name, BATCHES) for one in figures.series) > 1
        words = [part or TRAINING, series.datasource if several else ""]
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


def _held(curve: Curve, last: float) -> Curve:
    """Return a curve whose last value holds until the run's end."""
    values = [value for value in curve.y if value is not None]
    curve.x, curve.y = [*curve.x, max(last, curve.x[-1])], short([*values, values[-1]])
    return curve


def clock(figures: Figures) -> dict[str, Knots]:
    """Return the other axes of a run: epochs, examples and seconds at steps."""
    last = figures.last
    knots = {
        "epoch": epoch_knots(figures.epochs, last) if figures.epochs else [],
        "examples": example_knots(figures.sizes, last),
        "time": second_knots(figures.times, figures.pauses),
    }
    known = {name: [knot for knot in found if all(map(math.isfinite, knot))] for name, found in knots.items()}
    return {
        name: [(_digits(x), _digits(y)) for x, y in fewer(found)] for name, found in known.items() if len(found) > 1
    }


def short(values: Iterable[float], digits: int = DIGITS) -> list[float | None]:
    """Return values with few digits; None in place of what JSON has no number for."""
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
