"""The picture of loss curves. Small functions decide how it looks; matplotlib is imported where it is drawn."""

from __future__ import annotations

import io
import math
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import ModuleType
from typing import TYPE_CHECKING, Any

from train_manager.reporting.curves import Curve, Curves

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

FEW_POINTS = 30  # up to here each gets a marker, without which a single one could not be seen
LOG_FROM = 20.0  # largest loss over smallest from which a linear scale would flatten the rest of the training
AXES = {"epoch": "epochs", "batch": "batches", "example": "examples seen"}
TRAINING_COLOUR = "#707070"
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9")  # Okabe and Ito: for all kinds of eyes
MARKERS = ("o", "s", "^", "D", "v", "P")
LINE_STYLES = ("-", "--", ":", "-.")  # for the sets beyond the sixth
STYLE = {
    "axes.grid": True,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "font.size": 11,
    "grid.alpha": 0.3,
    "svg.hashsalt": "train_manager",  # the same curves make the same file
}


def draw(training: Curves, eval_sets: Mapping[str, Curves]) -> Figure:
    """A figure of three panels: the same losses by epoch, by batch and by example.

    Args:
        training: the curve of the training.
        eval_sets: the curves of the evaluation sets, by name.
    """
    matplotlib = require_matplotlib()
    from matplotlib.figure import Figure

    with matplotlib.style.context(STYLE, after_reset=True):  # whatever the user's own style is
        names = [short_name(name) for name in ("training", *eval_sets)]
        columns = legend_columns(names)
        below = 0.7 + 0.25 * math.ceil(len(names) / columns)  # inches for what stands below the panels
        height = 3.75 + below
        figure = Figure(figsize=(13, height))
        # Fixed margins: what a layout engine would find out here takes as long again as all the rest.
        figure.subplots_adjust(left=0.065, right=0.985, top=1 - 0.12 / height, bottom=below / height, wspace=0.22)
        panels = figure.subplots(1, 3)
        everything = [training, *eval_sets.values()]
        smooth = [y for curves in everything for y in curves["epoch"].y]
        all_values = [y for curves in everything for curve in curves.values() for y in curve.y]
        scale = scale_for(smooth or all_values, all_values)
        for axes, by in zip(panels, AXES, strict=True):
            _draw_panel(axes, by, scale, training, eval_sets)
        # One legend for all panels, below them, where it covers nothing.
        place = (0.5, (below - 0.5) / height)
        legend = figure.legend(
            panels[0].lines, names, loc="upper center", bbox_to_anchor=place, ncols=columns, frameon=False
        )
        for text in legend.get_texts():
            text.set_parse_math(False)  # a `$` in a name is a `$`
    return figure


def scale_for(deciding: Iterable[float], drawn: Iterable[float]) -> str:
    """The scale on which losses read better: "log" where they span a wide range, and all can be drawn on it.

    >>> scale_for([2.3, .02], [2.3, .5, .02]), scale_for([2.3, .5], [2.3, .5]), scale_for([2.3, .02], [2.3, 0.])
    ('log', 'linear', 'linear')

    Args:
        deciding: losses without the noise of single batches.
        drawn: all of them.
    """
    finite = [value for value in deciding if math.isfinite(value)]
    if not finite or any(value <= 0 for value in (*finite, *drawn)):
        return "linear"
    return "log" if max(finite) >= LOG_FROM * min(finite) else "linear"


def short_name(name: str, most: int = 90) -> str:
    """A name that fits into a legend: of a longer one the start and the end, by which names differ.

    >>> short_name("validation set of the year 2024, second half", most=20)
    'validation…cond half'
    """
    name = " ".join(name.split())
    half = (most - 1) // 2
    return name if len(name) <= most else f"{name[: most - 1 - half]}…{name[-half:]}"


def legend_columns(names: Sequence[str]) -> int:
    """How many entries of a legend fit beside each other.

    >>> legend_columns(["training", "valid"]), legend_columns(["training", "a set with a name " * 5])
    (2, 1)
    """
    return max(1, min(len(names), 140 // (max(map(len, names)) + 10)))


def _draw_panel(axes: Axes, by: str, scale: str, training: Curves, eval_sets: Mapping[str, Curves]) -> None:
    from matplotlib.ticker import EngFormatter, MaxNLocator

    axes.set_yscale(scale)
    axes.set_xlabel(AXES[by])
    axes.set_ylabel("loss")
    axes.xaxis.set_major_locator(MaxNLocator(nbins=6, integer=True))
    axes.xaxis.set_major_formatter(EngFormatter(sep=""))  # 2.5M rather than an offset somewhere else
    if scale == "log":
        axes.yaxis.set_major_formatter("{x:g}")
    noisy = {"linewidth": 0.8, "alpha": 0.8} if by != "epoch" else {}
    _draw_curve(axes, training[by], color=TRAINING_COLOUR, marker="x", **noisy)
    for curves, look in zip(eval_sets.values(), _looks(), strict=False):
        _draw_curve(axes, curves[by], **look)
    if not any(x > 0 for curves in (training, *eval_sets.values()) for x in curves[by].x):
        axes.set_xlim(-0.05, 1.05)  # before the first batch: matplotlib would zoom into the point at 0


def _draw_curve(axes: Axes, curve: Curve, **look: Any) -> None:
    x, y = curve.x, curve.y
    if len(x) > FEW_POINTS:
        look["marker"] = ""
    axes.plot(x, y, markersize=5, **look)


def _looks() -> Iterator[dict[str, Any]]:
    """Colours, markers and lines that can be told apart, one after the other."""
    number = 0
    while True:
        lap, place = divmod(number, len(COLOURS))
        yield {"color": COLOURS[place], "marker": MARKERS[place], "linestyle": LINE_STYLES[lap % len(LINE_STYLES)]}
        number += 1


def rendered(figure: Figure, kind: str) -> bytes:
    """The picture as "png" or "svg"; the same curves give the same bytes, if the figure is new."""
    file = io.BytesIO()
    matplotlib = require_matplotlib()
    with matplotlib.style.context(STYLE, after_reset=True), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing from font")  # a set may have a Chinese name
        figure.savefig(file, format=kind, dpi=100, metadata={"Date": None} if kind == "svg" else None)
    return file.getvalue()


def require_matplotlib() -> ModuleType:
    """The module matplotlib.

    Raises:
        ImportError: it is not there; how to get it.
    """
    try:
        import matplotlib
        import matplotlib.style
    except ImportError as error:
        raise ImportError(f'plots need matplotlib ({error}): pip install "train-manager[viz]"') from error
    return matplotlib
