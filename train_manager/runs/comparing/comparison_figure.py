"""The curves of compared runs: a panel for each figure, a line for each run, as SVG that is part of a page."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

from train_manager.reporting.loss_figure import (
    STYLE,
    draw_legend,
    draw_points,
    label_axes,
    looks,
    rendered,
    scale_for,
)
from train_manager.reporting.values import short_name

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from train_manager.runs.comparing.compared import Band, Points

MOST_PANELS: Final = 12
IN_A_ROW: Final = 2
INK: Final = "#010203"  # becomes the colour of the page's text, in light and dark
PAGE_STYLE: Final = {
    **STYLE,
    "svg.fonttype": "none",  # texts stay texts: they can be searched, and take the page's colour
    **dict.fromkeys(
        ("axes.edgecolor", "axes.labelcolor", "xtick.color", "ytick.color", "text.color", "grid.color"), INK
    ),
}


def curves_svg(
    curves: Mapping[str, Sequence[Points]],
    labels: Sequence[str],
    describing: str,
    bands: Mapping[str, Sequence[Band]] | None = None,
) -> str:
    """Return the curves as an ``<svg>`` element.

    Args:
        curves: for each figure the points of each run, over steps.
        labels: of the runs.
        describing: what a screen reader says in place of the picture.
        bands: between which values each curve was, which lie behind it.
    """
    return _of_page(rendered(curves_figure(curves, labels, bands), "svg", PAGE_STYLE).decode(), describing)


def curves_figure(
    curves: Mapping[str, Sequence[Points]],
    labels: Sequence[str],
    bands: Mapping[str, Sequence[Band]] | None = None,
) -> Figure:
    """Return the figure: a panel for each figure, a legend below them, and nothing behind them."""
    import matplotlib.style
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D

    names = list(curves)[:MOST_PANELS]
    rows = -(-len(names) // IN_A_ROW)
    columns = min(IN_A_ROW, len(names))
    with matplotlib.style.context(PAGE_STYLE, after_reset=True):
        figure = Figure(figsize=(5.2 * columns, 3.2 * rows + 0.4), layout="constrained")
        panels = list(figure.subplots(rows, columns, squeeze=False).flat)
        for panel, name in zip(panels, names, strict=False):
            _draw_panel(panel, name, curves[name], (bands or {}).get(name, ()))
        for unused in panels[len(names) :]:
            unused.remove()
        lines = [Line2D([], [], **look) for _, look in zip(labels, looks(), strict=False)]
        draw_legend(figure, lines, [short_name(label, 60) for label in labels], loc="outside lower center")
        for patch in (figure.patch, *(panel.patch for panel in figure.axes)):
            patch.set_alpha(0)
    return figure


def _draw_panel(axes: Axes, name: str, lines: Sequence[Points], bands: Sequence[Band]) -> None:
    heights = [y for points in lines for _, y in points]
    heights += [low for band in bands for _, low, _ in band]  # on a logarithmic scale none may be 0
    label_axes(axes, "steps", name, scale_for(heights, heights) if name.endswith("loss") else "linear")
    for points, look in zip(lines, looks(), strict=False):
        if points:
            x, y = zip(*points, strict=True)
            draw_points(axes, x, y, **look)
    for band, look in zip(bands, looks(), strict=False):
        if band:
            x, low, high = zip(*band, strict=True)
            axes.fill_between(x, low, high, color=look["color"], alpha=0.25, linewidth=0.8)


def _of_page(svg: str, describing: str) -> str:
    """Return a picture as an element of a page: without a head, in the page's colour, and with a name."""
    from markupsafe import escape  # comes with jinja2

    element = svg[svg.index("<svg") :]
    element = re.sub(r"<metadata>.*?</metadata>\s*", "", element, flags=re.DOTALL)
    element = re.sub(r'(<svg[^>]*?) width="[^"]*"', r"\1", element, count=1)
    element = re.sub(r'(<svg[^>]*?) height="[^"]*"', r"\1", element, count=1)
    name = f' role="img" aria-label="{escape(describing)}"'
    return element.replace(INK, "currentColor").replace("<svg", f"<svg{name}", 1)
