"""How the pictures of the benchmarks look."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from benchmarks.measure import Spread
from train_manager.plots import COLOURS, MARKERS, STYLE, require_matplotlib

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

OURS = "Train Manager"
OUR_LOOK: dict[str, Any] = {"color": "black", "linewidth": 2.5, "marker": "*", "markersize": 10, "zorder": 3}


def figure(panels: int, height: float) -> tuple[Figure, list[Axes]]:
    """A new figure, and its panels side by side."""
    matplotlib = require_matplotlib()
    from matplotlib.figure import Figure

    with matplotlib.style.context(STYLE, after_reset=True):
        made = Figure(figsize=(9, height), layout="constrained")
        return made, list(made.subplots(1, panels, squeeze=False)[0])


def lines_of(axes: Axes, lines: Mapping[str, Mapping[str, Spread]]) -> None:
    """A line per case over points that are equally far apart, on a log scale, with a legend beside it."""
    for number, (name, points) in enumerate(lines.items()):
        look: dict[str, Any] = {"color": COLOURS[number % len(COLOURS)], "marker": MARKERS[number % len(MARKERS)]}
        look |= {"linestyle": "-" if number < len(COLOURS) else "--"}
        medians = [point.median for point in points.values()]
        axes.plot(list(points), medians, **(OUR_LOOK if name == OURS else look), label=name)
    axes.set_yscale("log")
    axes.yaxis.set_major_formatter("{x:g}")
    _legend_in_order(axes)


def bars_of(axes: Axes, groups: Mapping[str, Mapping[str, Spread]]) -> None:
    """Groups of bars that lie, first on top, with their quartiles; on a log scale."""
    thickness = 0.8 / len(groups)
    for number, (group, bars) in enumerate(groups.items()):
        places = [place + number * thickness for place in range(len(bars))]
        medians = [bar.median for bar in bars.values()]
        errors = _errors(list(bars.values()))
        axes.barh(
            places, medians, thickness, xerr=errors, color=COLOURS[number], error_kw={"linewidth": 1}, label=group
        )
        for place, bar in zip(places, bars.values(), strict=True):
            axes.annotate(
                f"{bar.median:.3g}", (bar.high, place), (4, 0), textcoords="offset points", va="center", fontsize=9
            )
    axes.set_yticks([place + 0.4 - thickness / 2 for place in range(len(bars))], list(bars))
    axes.invert_yaxis()
    axes.set_xscale("log")
    axes.set_xlim(right=axes.get_xlim()[1] * 2)  # room for the figures
    axes.xaxis.set_major_formatter("{x:g}")
    axes.grid(visible=False, axis="y")
    axes.legend(loc="lower right", frameon=False)


def _legend_in_order(axes: Axes) -> None:
    """A legend to the right, from the highest line to the lowest where they end."""
    ends = sorted(axes.lines, key=lambda line: -line.get_ydata()[-1])
    axes.legend(handles=ends, loc="center left", bbox_to_anchor=(1.01, 0.5), frameon=False)


def line_of(axes: Axes, x: Sequence[int], points: Sequence[Spread]) -> None:
    """One line with its quartiles, both scales logarithmic."""
    axes.errorbar(x, [point.median for point in points], yerr=_errors(points), color="black", marker="o", markersize=5)
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.xaxis.set_major_formatter("{x:g}")
    axes.yaxis.set_major_formatter("{x:g}")


def flat_of(axes: Axes, lines: Mapping[str, tuple[Sequence[int], Sequence[Spread]]]) -> None:
    """Lines that should be flat, on a scale from 0, with their quartiles."""
    for number, (name, (x, points)) in enumerate(lines.items()):
        medians = [point.median for point in points]
        look: dict[str, Any] = {"color": COLOURS[number], "marker": MARKERS[number], "markersize": 5}
        axes.errorbar(x, medians, yerr=_errors(points), label=name, **look)
    axes.set_xscale("log")
    axes.xaxis.set_major_formatter("{x:g}")
    axes.set_ylim(bottom=0)
    axes.legend(loc="lower left", frameon=False)


def _errors(points: Sequence[Spread]) -> list[list[float]]:
    """Down to the lower quartile and up to the upper."""
    return [[point.median - point.low for point in points], [point.high - point.median for point in points]]
