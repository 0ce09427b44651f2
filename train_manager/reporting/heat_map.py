"""A heat map as SVG: a row for each layer, the steps from left to right; pixels are one small PNG inside of it."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final, final
from xml.sax.saxutils import escape

from train_manager.reporting.embedded import colour_image
from train_manager.reporting.svg_figure import Axis, tick_text

RIGHT, TOP, BELOW = 100, 34, 46  # pixels around the map: for the scale of colours, the title and the steps
LETTER: Final = 7  # pixels of the width of a letter
LINE: Final = 15  # pixels of height that the name of a layer needs
MOST_COLUMNS: Final = 400
MOST_LETTERS: Final = 30
MOST_RATIO: Final = 1e8  # of the ends of a logarithmic scale; smaller values all get the darkest colour


@final
@dataclass(frozen=True)
class HeatMap:
    """Values of layers.

    Args:
        title: what is shown.
        labels: the names of the layers.
        x: where each column ends.
        columns: for each column the values of the layers; nan where there is none, which is grey.
        scale: "log", where values above 0 only have a colour; or "linear".
        x_label: what ``x`` counts.
        x_low: where the first column begins.
        ends: the ends of a linear scale; None takes them from the values.
    """

    title: str
    labels: Sequence[str]
    x: Sequence[float]
    columns: Sequence[Sequence[float]]
    scale: str = "log"
    x_label: str = "steps"
    x_low: float = 0.0
    ends: tuple[float, float] | None = None


def height_of(picture: HeatMap) -> int:
    """Return the pixels that a map needs from its title to the name of its axis."""
    return TOP + _map_height(picture) + BELOW


def _map_height(picture: HeatMap) -> int:
    return max(60, min(560, 22 * len(picture.labels)))


def heat_map(picture: HeatMap, top: float, width: int) -> Iterator[str]:
    """Yield the parts of an SVG file, from ``top`` on."""
    labels = short_labels(picture.labels)
    left, right, above = 24 + LETTER * max(map(len, labels)), width - RIGHT, top + TOP
    height = _map_height(picture)
    low, high = picture.ends or _ends(picture)
    # The map has a fixed number of columns of equal width; each shows the values at its right edge.
    steps = [picture.x_low + (picture.x[-1] - picture.x_low) * (n + 1) / MOST_COLUMNS for n in range(MOST_COLUMNS)]
    shown = [picture.columns[min(bisect_left(picture.x, step - 1e-9), len(picture.x) - 1)] for step in steps]
    rows = [[_colour(column[n], low, high, picture.scale) for column in shown] for n in range(len(picture.labels))]
    yield f'<text x="{left}" y="{top + 20:.1f}">{escape(picture.title)}</text>'
    yield colour_image(rows, left, above, right - left, height)
    # Names that would overlap are left out.
    every = math.ceil(len(picture.labels) * LINE / height)
    for number, label in list(enumerate(labels))[::every]:
        y = above + (number + 0.5) * height / len(picture.labels)
        yield f'<text x="{left - 8}" y="{y + 4:.1f}" text-anchor="end">{escape(label)}</text>'
    bottom = above + height
    axis = Axis([picture.x_low, picture.x[-1]], left, right, room=0)
    for value in axis.ticks(5, whole=picture.x_label == "steps"):
        at = axis.place(value)
        yield f'<path class="axis" d="M{at:.1f} {bottom:.1f}v5"/>'
        yield f'<text x="{at:.1f}" y="{bottom + 18:.1f}" text-anchor="middle">{tick_text(value, in_units=True)}</text>'
    middle = (left + right) / 2
    yield f'<text x="{middle:.1f}" y="{bottom + 38:.1f}" text-anchor="middle">{escape(picture.x_label)}</text>'
    yield from _scale(picture.scale, low, high, right + 16, above, height)


def _scale(scale: str, low: float, high: float, left: float, top: float, height: float) -> Iterator[str]:
    """Yield the bar that shows which number a colour stands for."""
    yield colour_image([[number] for number in range(255, 0, -1)], left, top, 14, height)
    axis = Axis([low, high], top + height, top, is_log=scale == "log", room=0)
    for value in axis.ticks(max(2, min(6, int(height / LINE / 2)))):
        at = axis.place(value)
        yield f'<path class="axis" d="M{left + 14:.1f} {at:.1f}h4"/>'
        yield f'<text x="{left + 22:.1f}" y="{at + 4:.1f}">{value:.3g}</text>'


def _ends(picture: HeatMap) -> tuple[float, float]:
    is_log = picture.scale == "log"
    found = [v for column in picture.columns for v in column if math.isfinite(v) and (v > 0 or not is_log)]
    low, high = (min(found), max(found)) if found else (0.1, 1.0)
    low = max(low, high / MOST_RATIO) if is_log else low
    # All values are equal: a scale around them, so that nothing is divided by zero.
    if low < high:
        return low, high
    return (low / 2, high * 2) if is_log else (low - 0.5, high + 0.5)


def _colour(value: float, low: float, high: float, scale: str) -> int:
    """Return the number of a colour: 0, which is grey, for a value without one; infinity gets the first or last."""
    if math.isnan(value) or (scale == "log" and value < 0):
        return 0
    if scale == "log":
        if value == 0:
            return 1
        value, low, high = math.log(value), math.log(low), math.log(high)
    share = max(0.0, min(1.0, (value - low) / (high - low)))
    return 1 + round(share * 254)


def short_labels(labels: Sequence[str]) -> list[str]:
    """Return labels without the beginning of their paths that all share; a long label loses its beginning.

    >>> short_labels(["net.block.0 Linear", "net.block.1 BatchNorm2d"])
    ['0 Linear', '1 BatchNorm2d']
    """
    paths = [label.partition(" ")[0].split(".") for label in labels]
    common = 0
    while len(labels) > 1 and len({tuple(path[: common + 1]) for path in paths}) == 1 < min(map(len, paths)) - common:
        common += 1
    cut = [label.split(".", common)[-1] if common else label for label in labels]
    return [label if len(label) <= MOST_LETTERS else f"…{label[1 - MOST_LETTERS :]}" for label in cut]
