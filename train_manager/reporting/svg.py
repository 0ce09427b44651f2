"""Panels of curves as one SVG file, written without matplotlib, whose import takes longer than a short training.

The file has no script and no font of its own, is light or dark as the page that shows it, and is the same for the same
curves.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final, final
from xml.sax.saxutils import escape

from train_manager.reporting.panels import (
    BELOW,
    FEW_POINTS,
    LABEL_LETTERS,
    LEGEND_LINE,
    Line,
    Look,
    Panel,
    Panels,
    entry_width,
    legend_columns,
    tick_text,
)
from train_manager.reporting.values import short_name

LEFT, RIGHT, TOP = 72, 14, 12  # pixels around the plot of a panel: numbers and name of its axis
LARGEST: Final = 1e290  # a curve has a gap at larger values, as at nan: the range of the axis would overflow
DASHES: Final = {"-": "", "--": "7 3", ":": "2 3", "-.": "7 3 2 3"}
MARKERS: Final = {
    "x": "M-3.5-3.5 3.5 3.5M-3.5 3.5 3.5-3.5",
    "o": "M-3.5 0a3.5 3.5 0 1 0 7 0a3.5 3.5 0 1 0-7 0z",
    "s": "M-3-3H3V3H-3z",
    "^": "M0-4 4 3H-4z",
    "D": "M0-4.5 4.5 0 0 4.5-4.5 0z",
    "v": "M0 4 4-3H-4z",
    "P": "M-1.3-4H1.3V-1.3H4V1.3H1.3V4H-1.3V1.3H-4V-1.3H-1.3z",
}
STYLE: Final = """\
text { font: 13px system-ui, "DejaVu Sans", sans-serif; fill: #222 }
.paper { fill: #fff } .axis { stroke: #444; fill: none } .grid { stroke: #8884; fill: none } path.line { fill: none }
@media (prefers-color-scheme: dark) {
  text { fill: #ddd } .paper { fill: #16181c } .axis { stroke: #aaa }
  path[stroke], path[fill] { filter: brightness(1.4) }
}
"""


def svg(picture: Panels) -> str:
    """Return the text of the file: rows of panels, and below them one legend for all.

    >>> look = {"color": "#0072b2", "marker": "o"}
    >>> panel = Panel("epochs", "loss", "linear", [Line(look, [1, 2], [.5, .25])])
    >>> text = svg(Panels([(300, [panel])], [("valid", look)]))
    >>> text.startswith("<svg"), ">valid</text>" in text, ">loss</text>" in text
    (True, True, True)
    """
    size = f'width="{picture.width}" height="{picture.height}"'
    head = f'<svg xmlns="http://www.w3.org/2000/svg" {size} viewBox="0 0 {picture.width} {picture.height}">'
    paper = f'<rect class="paper" {size}/>'
    return "\n".join([head, f"<style>{STYLE}</style>", paper, *shapes(picture), "</svg>", ""])


def shapes(picture: Panels) -> list[str]:
    """Return the elements of ``svg``, for a picture of another style.

    Their classes are "grid", "axis" and "line"; beside those there are texts and the markers of points.
    """
    parts: list[str] = []
    top = 0
    for height, panels in picture.rows:
        wide = picture.width / max(1, len(panels))
        for number, panel in enumerate(panels):
            parts += _panel(panel, _Box(number * wide + LEFT, (number + 1) * wide - RIGHT, top + TOP, top + height))
        top += height + BELOW
    return [*parts, *_legend(picture, top)]


@final
@dataclass(frozen=True)
class _Box:
    """The plot of a panel, in pixels."""

    left: float
    right: float
    top: float
    bottom: float


@final
class _Axis:
    """An axis: where a value lies on it, and its ticks."""

    def __init__(self, values: Sequence[float], begin: float, end: float, *, is_log: bool = False) -> None:
        # Without values the axis runs over one decade, or from 0 to 1.
        found = [value for value in values if _can_be_drawn(value)] or ([1.0, 10.0] if is_log else [0.0, 1.0])
        low, high = min(found), max(found)
        self._is_log, self._begin, self._end = is_log, begin, end
        if is_log:
            low, high = math.log10(low), math.log10(high)
        # All values are equal, up to rounding: the axis needs some width to divide by.
        is_one_value = high - low <= 1e-9 * max(abs(low), abs(high), LARGEST**-1)
        room = (0.05 * abs(high) or 0.5) if is_one_value else 0.05 * (high - low)
        self.low, self.high = low - max(room, LARGEST**-1), high + max(room, LARGEST**-1)

    def place(self, value: float) -> float:
        """Return the pixel of a value."""
        value = math.log10(value) if self._is_log else value
        return self._begin + (value - self.low) / (self.high - self.low) * (self._end - self._begin)

    def ticks(self, most: int, *, whole: bool = False) -> list[float]:
        """Return round values: multiples of 1, 2 or 5 times a power of ten, on a log axis these numbers themselves."""
        if self._is_log:
            return self._log_ticks(most)
        step = _round_step((self.high - self.low) / most, whole=whole)
        first = math.ceil(self.low / step - 1e-9)
        return [number * step for number in range(first, math.floor(self.high / step + 1e-9) + 1)]

    def _log_ticks(self, most: int) -> list[float]:
        decades = range(math.floor(self.low), math.ceil(self.high) + 1)
        # Three ticks in each decade if they fit, else one; if even these are too many, each n-th of them.
        for of_each in ((1, 2, 5), (1,)):
            found = [m * 10.0**n for n in decades for m in of_each if self.low <= math.log10(m * 10.0**n) <= self.high]
            if len(found) <= most:
                return found
        return found[:: math.ceil(len(found) / most)]


def _can_be_drawn(value: float) -> bool:
    return math.isfinite(value) and abs(value) <= LARGEST


def _round_step(step: float, *, whole: bool) -> float:
    power = 10.0 ** math.floor(math.log10(step))
    # The factor 1e-9 forgives rounding: a step of exactly 0.2 must not become 0.5.
    rounded = next(factor * power for factor in (1, 2, 5, 10) if factor * power >= step * (1 - 1e-9))
    return max(1.0, rounded) if whole else rounded


def _panel(panel: Panel, box: _Box) -> Iterator[str]:
    is_log = panel.scale == "log"
    x = _Axis([value for line in panel.lines for value in line.x], box.left, box.right)
    y = _Axis([value for line in panel.lines for value in line.y], box.bottom, box.top, is_log=is_log)
    for value in x.ticks(6, whole=True):
        at, text = x.place(value), tick_text(value)
        yield f'<path class="grid" d="M{at:.1f} {box.top:.1f}V{box.bottom:.1f}"/>'
        yield f'<text x="{at:.1f}" y="{box.bottom + 18:.1f}" text-anchor="middle">{text}</text>'
    for value in y.ticks(8 if is_log else 6):
        at = y.place(value)
        yield f'<path class="grid" d="M{box.left:.1f} {at:.1f}H{box.right:.1f}"/>'
        text = tick_text(value)
        yield f'<text x="{box.left - 6:.1f}" y="{at + 4:.1f}" text-anchor="end">{text}</text>'
    yield f'<path class="axis" d="M{box.left:.1f} {box.top:.1f}V{box.bottom:.1f}H{box.right:.1f}"/>'
    middle, centre = (box.left + box.right) / 2, (box.top + box.bottom) / 2
    yield f'<text x="{middle:.1f}" y="{box.bottom + 38:.1f}" text-anchor="middle">{escape(panel.x_label)}</text>'
    # The name of the y axis runs upwards, so the text is turned around its own place.
    turned = f"translate({box.left - 56:.1f} {centre:.1f}) rotate(-90)"
    name = escape(short_name(panel.y_label, LABEL_LETTERS))
    yield f'<text transform="{turned}" text-anchor="middle">{name}</text>'
    for line in panel.lines:
        yield from _curve(line, x, y)


def _curve(line: Line, x: _Axis, y: _Axis) -> Iterator[str]:
    points = [(x.place(a), y.place(b)) if _can_be_drawn(b) else None for a, b in zip(line.x, line.y, strict=True)]
    yield _stroke(line.look, _path(points))
    if len(points) <= FEW_POINTS and "marker" in line.look:
        yield from (_marker(line.look, *point) for point in points if point is not None)


def _path(points: Sequence[tuple[float, float] | None]) -> str:
    """Return the path through points; None is a gap."""
    before, parts = None, []
    for point in points:
        if point is not None:
            parts.append(f"{'M' if before is None else 'L'}{point[0]:.1f} {point[1]:.1f}")
        before = point
    return "".join(parts)


def _stroke(look: Look, path: str) -> str:
    dash = DASHES[look.get("linestyle", "-")]
    dashes = f' stroke-dasharray="{dash}"' if dash else ""
    width, alpha = look.get("linewidth", 1.6), look.get("alpha", 1)
    return f'<path class="line" stroke="{look["color"]}" stroke-width="{width}" opacity="{alpha}"{dashes} d="{path}"/>'


def _marker(look: Look, x: float, y: float) -> str:
    shape = f'd="{MARKERS[look["marker"]]}" transform="translate({x:.1f} {y:.1f})"'
    colour = look["color"]
    if look["marker"] == "x":
        return f'<path {shape} stroke="{colour}" stroke-width="1.5" fill="none"/>'
    return f'<path {shape} fill="{colour}"/>'


def _legend(picture: Panels, top: float) -> Iterator[str]:
    """Yield the entries, in columns of one width, in the middle of the picture."""
    names = [name for name, _ in picture.legend]
    width, columns = entry_width(names), legend_columns(names, picture.width)
    left = (picture.width - width * columns) / 2
    for number, (name, look) in enumerate(zip(names, [look for _, look in picture.legend], strict=True)):
        x, y = left + number % columns * width, top + LEGEND_LINE * (number // columns) + 12
        yield _stroke(look, f"M{x:.1f} {y:.1f}h32")
        yield _marker(look, x + 16, y)
        yield f'<text x="{x + 40:.1f}" y="{y + 4.5:.1f}">{escape(name)}</text>'
