"""The figure of a history: a panel for the loss and for each metric, over the epochs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from train_manager.reporting.loss_figure import (
    STYLE,
    TRAINING_LOOK,
    draw_legend,
    draw_points,
    for_notebook,
    label_axes,
    looks,
    scale_for,
)
from train_manager.reporting.values import short_name

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Points = list[tuple[float, float]]

MOST_IN_A_ROW = 3  # panels


def history_figure(panels: Mapping[str, Mapping[str, Points]], x_label: str) -> Figure:
    """Return a figure with a panel for each metric, such as "loss", and in it a line for each set.

    Args:
        panels: name of the metric -> name of the set -> points. The training is the set "training".
        x_label: what the points are over.
    """
    import matplotlib.style
    from matplotlib.figure import Figure

    sets = sorted(dict.fromkeys(name for lines in panels.values() for name in lines), key="training".__ne__)
    columns = max(1, min(MOST_IN_A_ROW, len(panels)))
    rows = max(1, -(-len(panels) // columns))
    with matplotlib.style.context(STYLE, after_reset=True):  # the user's own style must not change the picture
        figure = Figure(figsize=(4.6 * columns + 0.6, 3.6 * rows + 0.5), layout="constrained")
        axes = figure.subplots(rows, columns, squeeze=False).flat
        for name, panel in zip(panels, axes, strict=False):
            _draw_panel(panel, name, panels[name], sets, x_label)
        for unused in list(axes)[len(panels) :]:
            unused.remove()
        _draw_legend(figure)
    return for_notebook(figure)


def _draw_panel(axes: Axes, name: str, lines: Mapping[str, Points], sets: Sequence[str], x_label: str) -> None:
    heights = [y for points in lines.values() for _, y in points]
    label_axes(axes, x_label, name, scale_for(heights, heights) if name == "loss" else "linear")
    others = looks()
    for set_name in sets:
        look = TRAINING_LOOK if set_name == "training" else next(others)
        x, y = zip(*lines[set_name], strict=True) if set_name in lines else ((), ())
        draw_points(axes, x, y, label=short_name(set_name), **look)


def _draw_legend(figure: Figure) -> None:
    drawn: dict[str, Any] = {}
    for axes in figure.axes:
        for handle, label in zip(*axes.get_legend_handles_labels(), strict=True):
            drawn.setdefault(label, handle)
    if drawn:
        draw_legend(figure, list(drawn.values()), list(drawn), loc="outside lower center")
