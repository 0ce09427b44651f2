"""The figure of a history: a panel for the loss and for each metric, over the epochs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from itertools import cycle
from typing import TYPE_CHECKING, Any

from train_manager.reporting.loss_figure import (
    COLOURS,
    FEW_POINTS,
    MARKERS,
    STYLE,
    TRAINING_COLOUR,
    legend_columns,
    rendered,
    require_matplotlib,
    scale_for,
)
from train_manager.reporting.values import short_name

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Points = list[tuple[float, float]]

MOST_IN_A_ROW = 3  # panels


def history_figure(panels: Mapping[str, Mapping[str, Points]], x_label: str) -> Figure:
    """Return a figure with a panel for each figure, such as "loss", and in it a line for each set.

    Args:
        panels: name of the figure -> name of the set -> points. The training is the set "training".
        x_label: what the points are over.
    """
    matplotlib = require_matplotlib()
    from matplotlib.figure import Figure

    sets = sorted({name for lines in panels.values() for name in lines}, key=lambda name: name != "training")
    columns = max(1, min(MOST_IN_A_ROW, len(panels)))
    rows = max(1, -(-len(panels) // columns))
    with matplotlib.style.context(STYLE, after_reset=True):  # the user's own style must not change the picture
        figure = Figure(figsize=(4.6 * columns + 0.6, 3.6 * rows + 0.5), layout="constrained")
        axes = figure.subplots(rows, columns, squeeze=False).flat
        for name, panel in zip(panels, axes, strict=False):
            _draw_panel(panel, name, panels[name], sets, x_label)
        for unused in list(axes)[len(panels) :]:
            unused.remove()
        _draw_legend(figure, sets)
    figure._repr_png_ = partial(rendered, figure, "png")  # type: ignore[attr-defined]  # what a notebook shows
    return figure


def _draw_panel(axes: Axes, name: str, lines: Mapping[str, Points], sets: Sequence[str], x_label: str) -> None:
    from matplotlib.ticker import EngFormatter, MaxNLocator

    heights = [y for points in lines.values() for _, y in points]
    axes.set_yscale(scale_for(heights, heights) if name == "loss" else "linear")
    if axes.get_yscale() == "log":
        axes.yaxis.set_major_formatter("{x:g}")
    axes.set_xlabel(x_label)
    axes.set_ylabel(short_name(name, 30), parse_math=False)
    axes.xaxis.set_major_locator(MaxNLocator(nbins=6, integer=True))
    axes.xaxis.set_major_formatter(EngFormatter(sep=""))
    for set_name, (colour, marker) in zip(sets, _looks(sets), strict=False):
        points = lines.get(set_name, [])
        marker = marker if len(points) <= FEW_POINTS else ""
        axes.plot(*zip(*points, strict=True), color=colour, marker=marker, markersize=5, label=short_name(set_name))


def _looks(sets: Sequence[str]) -> list[tuple[str, str]]:
    """Return a colour and a marker for each set."""
    others = cycle(zip(COLOURS, MARKERS, strict=True))
    return [(TRAINING_COLOUR, "x") if name == "training" else next(others) for name in sets]


def _draw_legend(figure: Figure, sets: Sequence[str]) -> None:
    drawn: dict[str, Any] = {}
    for axes in figure.axes:
        for handle, label in zip(*axes.get_legend_handles_labels(), strict=True):
            drawn.setdefault(label, handle)
    if drawn:
        columns = legend_columns([short_name(name) for name in sets])
        legend = figure.legend(drawn.values(), drawn, loc="outside lower center", ncols=columns, frameon=False)
        for text in legend.get_texts():
            text.set_parse_math(False)  # a `$` in a name is not mathematics
