"""What a picture of lines shows, whatever draws it: panels in rows, with one legend for all of them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import cycle, takewhile
from typing import Any, Final, final

Look = Mapping[str, Any]
"""How a line is drawn: "color", "marker" if points have one, and in the names of matplotlib "linestyle", "linewidth"
and "alpha"."""

WIDE: Final = 1300  # pixels of a picture with several panels in a row
NARROW: Final = 720  # pixels of a picture with one panel in a row: its texts can be read on a phone too
BELOW: Final = 46  # pixels below a plot, for the numbers and the name of its axis
LEGEND_LINE: Final = 24  # pixels
FEW_POINTS: Final = 30  # up to so many points each has a marker, without which a single point is invisible
LOG_FROM: Final = 20.0  # ratio of largest to smallest value from which a linear scale would flatten the small ones
LABEL_LETTERS: Final = 30  # of the name of an axis
PANELS_IN_A_ROW: Final = 3

TRAINING_COLOUR: Final = "#707070"
TRAINING_LOOK: Final = {"color": TRAINING_COLOUR, "marker": "x"}
COLOURS: Final = (
    "#0072b2",
    "#d55e00",
    "#009e73",
    "#cc79a7",
    "#e69f00",
    "#56b4e9",
)  # of Okabe and Ito, for the colour-blind
MARKERS: Final = ("o", "s", "^", "D", "v", "P")
LINE_STYLES: Final = ("-", "--", ":", "-.")  # for the lines beyond the sixth


@final
@dataclass(frozen=True)
class Line:
    """A line in a panel; it has a gap where a value is not finite."""

    look: Look
    x: Sequence[float]
    y: Sequence[float]


@final
@dataclass(frozen=True)
class Panel:
    """Lines over one axis; ``scale`` is that of the values, "linear" or "log"."""

    x_label: str
    y_label: str
    scale: str
    lines: Sequence[Line]


@final
@dataclass(frozen=True)
class Panels:
    """A picture of lines.

    Attributes:
        rows: for each row its height in pixels, and its panels, which share its width.
        legend: the name and the look of each line.
        width: of the picture, in pixels.
    """

    rows: Sequence[tuple[int, Sequence[Panel]]]
    legend: Sequence[tuple[str, Look]]
    width: int = WIDE

    @property
    def height(self) -> int:
        """The pixels of all rows, and of the legend below them."""
        lines = math.ceil(len(self.legend) / legend_columns([name for name, _ in self.legend], self.width))
        return sum(height + BELOW for height, _ in self.rows) + LEGEND_LINE * lines + 8


def looks() -> Iterator[dict[str, Any]]:
    """Yield colours, markers and lines that differ from each other; the line changes after the last colour."""
    for linestyle in cycle(LINE_STYLES):
        for colour, marker in zip(COLOURS, MARKERS, strict=True):
            yield {"color": colour, "marker": marker, "linestyle": linestyle}


def scale_for(deciding: Iterable[float], drawn: Iterable[float]) -> str:
    """Return "log" if losses span a wide range and all are positive, otherwise "linear".

    >>> scale_for([2.3, .02], [2.3, .5, .02]), scale_for([2.3, .5], [2.3, .5]), scale_for([2.3, .02], [2.3, 0.])
    ('log', 'linear', 'linear')

    Args:
        deciding: losses without the noise of single batches.
        drawn: all losses of the picture.
    """
    finite = [value for value in deciding if math.isfinite(value)]
    if not finite or any(value <= 0 for value in (*finite, *drawn)):
        return "linear"
    return "log" if max(finite) >= LOG_FROM * min(finite) else "linear"


def legend_columns(names: Sequence[str], width: int) -> int:
    """Return how many entries of a legend are beside each other in a picture of so many pixels.

    >>> legend_columns(["training", "valid"], 1300), legend_columns(["training", "a set with a name " * 5], 1300)
    (2, 1)
    """
    return max(1, min(len(names), width // entry_width(names)))


def entry_width(names: Sequence[str]) -> int:
    """Return the pixels of an entry of a legend: the sample of the line, and 8 pixels for each letter."""
    return 60 + 8 * max(map(len, names), default=0)


def short_labels(labels: Sequence[str]) -> list[str]:
    """Return names of layers without the modules that all of them begin with.

    >>> short_labels(["model.blocks.0.fc Linear", "model.blocks.1.fc Linear"])
    ['0.fc Linear', '1.fc Linear']
    """
    # The last module of a path is never left out.
    paths = [label.split(".")[:-1] for label in labels]
    modules = zip(*paths, strict=False) if len(labels) > 1 else ()
    same = sum(1 for _ in takewhile(lambda names: len({*names}) == 1, modules))
    return [label.split(".", same)[-1] for label in labels]


def tick_text(value: float) -> str:
    """Return the number at a tick of an axis.

    >>> tick_text(0.25), tick_text(2_500_000)
    ('0.25', '2.5M')
    """
    if abs(value) < 1000:
        return f"{value:.6g}"
    power = min(4, int(math.log10(abs(value)) // 3))
    return f"{value / 1000**power:.6g}{' kMGT'[power]}"


def in_rows(height: int, panels: Sequence[Panel]) -> list[tuple[int, Sequence[Panel]]]:
    """Return panels in rows of at most three."""
    starts = range(0, len(panels), PANELS_IN_A_ROW)
    return [(height, panels[first : first + PANELS_IN_A_ROW]) for first in starts]
