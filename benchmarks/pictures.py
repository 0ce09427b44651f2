"""How the pictures of the benchmarks look."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import cycle
from typing import TYPE_CHECKING, Any, Final

from benchmarks.measure import Spread
from benchmarks.stages import BY_HAND, FLOOR, OURS
from train_manager.reporting.figures import STYLE
from train_manager.reporting.panels import COLOURS, MARKERS

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

LOOKS: Final[dict[str, dict[str, Any]]] = {  # of who is not one of the peers
    OURS: {"color": "black", "linewidth": 2.5, "marker": "*", "markersize": 10, "zorder": 3},
    FLOOR: {"color": "#707070", "linestyle": ":", "marker": "."},
    BY_HAND: {"color": "#707070", "linestyle": "--", "marker": "."},
}


def figure(panels: int, height: float) -> tuple[Figure, list[Axes]]:
    """A new figure, and its panels side by side."""
    import matplotlib.style
    from matplotlib.figure import Figure

    with matplotlib.style.context(STYLE, after_reset=True):
        made = Figure(figsize=(9, height), layout="constrained")
        return made, list(made.subplots(1, panels, squeeze=False)[0])


def lines_of(axes: Axes, lines: Mapping[str, Mapping[str, Spread]]) -> None:
    """A line per case over points that are equally far apart, on a log scale, with a legend beside it."""
    looks = cycle({"color": colour, "marker": marker} for colour, marker in zip(COLOURS, MARKERS, strict=True))
    for name, points in lines.items():
        look = LOOKS[name] if name in LOOKS else next(looks)
        axes.plot(list(points), [point.median for point in points.values()], **look, label=name)
    axes.set_yscale("log")
    axes.yaxis.set_major_formatter("{x:g}")
    from_highest = sorted(lines, key=lambda name: -list(lines[name].values())[-1].median)
    handles = {line.get_label(): line for line in axes.lines}
    axes.legend(
        handles=[handles[name] for name in from_highest], loc="center left", bbox_to_anchor=(1.01, 0.5), frameon=False
    )


def bars_of(axes: Axes, groups: Mapping[str, Mapping[str, Spread]]) -> None:
    """Groups of bars that lie, first on top, with their quartiles; on a log scale."""
    thickness = 0.8 / len(groups)
    for number, (group, bars) in enumerate(groups.items()):
        places = [place + number * thickness for place in range(len(bars))]
        lengths = [max(bar.median, 1.0) for bar in bars.values()]  # a log scale shows nothing that is not positive
        errors = _errors(list(bars.values()))
        axes.barh(
            places, lengths, thickness, xerr=errors, color=COLOURS[number], error_kw={"linewidth": 1}, label=group
        )
        for place, bar in zip(places, bars.values(), strict=True):
            axes.annotate(
                f"{bar.median:.1f}" if bar.median < 100 else f"{bar.median:.0f}",
                (bar.high, place),
                (4, 0),
                textcoords="offset points",
                va="center",
                fontsize=9,
            )
    axes.set_yticks([place + 0.4 - thickness / 2 for place in range(len(bars))], list(bars))
    axes.invert_yaxis()
    axes.set_xscale("log")
    axes.set_xlim(left=1, right=axes.get_xlim()[1] * 1.5)  # room for the numbers
    axes.xaxis.set_major_formatter("{x:g}")
    axes.grid(visible=False, axis="y")
    axes.legend(loc="upper right", frameon=False)


def line_of(axes: Axes, x: Sequence[int], points: Sequence[Spread]) -> None:
    """One line with its quartiles, both scales logarithmic."""
    axes.errorbar(x, [point.median for point in points], yerr=_errors(points), color="black", marker="o", markersize=5)
    straight = [points[-1].median * size / x[-1] for size in x]
    axes.plot(x, straight, color="#707070", linestyle=":", label="a straight line")
    axes.legend(loc="upper left", frameon=False)
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
    axes.set_ylim(0, max(1.5, axes.get_ylim()[1]))
    axes.legend(loc="lower left", frameon=False)


def _errors(points: Sequence[Spread]) -> list[list[float]]:
    """Down to the lower quartile and up to the upper."""
    return [[point.median - point.low for point in points], [point.high - point.median for point in points]]
