"""The figure of loss curves. matplotlib is imported only when a figure is drawn."""

from __future__ import annotations

import io
import math
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import cycle
from typing import TYPE_CHECKING, Any

from train_manager.reporting.values import short_name

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from train_manager.metrics.windows import Curve
    from train_manager.reporting.curves import Curves, MetricCurves

FEW_POINTS = 30  # up to so many points each has a marker, without which a single point is invisible
LOG_FROM = 20.0  # ratio of largest to smallest loss from which a linear scale would flatten the rest of the training
AXES = {"epoch": "epochs", "batch": "batches", "example": "examples seen"}
TRAINING_COLOUR = "#707070"
TRAINING_LOOK = {"color": TRAINING_COLOUR, "marker": "x"}
NOISY_LOOK = {"linewidth": 0.8, "alpha": 0.8}  # for the curves of single batches
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9")  # Okabe and Ito: safe for colour blindness
MARKERS = ("o", "s", "^", "D", "v", "P")
LINE_STYLES = ("-", "--", ":", "-.")  # for the sets beyond the sixth
ROWS_OF_RANK_0 = "rows of rank 0"
"""What the losses of batches are of if several processes train together; epochs and evaluations are of all rows."""
STYLE = {
    "axes.grid": True,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "font.size": 11,
    "grid.alpha": 0.3,
    "svg.hashsalt": "train_manager",  # fixed, because matplotlib's ids in the file are random otherwise
}


def draw(
    training: Curves, eval_sets: Mapping[str, Curves], metrics: MetricCurves | None = None, is_of_rank: bool = False
) -> Figure:
    """Return a figure: the losses by epoch, by batch and by example, and below them a panel for each metric.

    Args:
        training: the curves of the training.
        eval_sets: the curves of the evaluation sets, by name.
        metrics: for each metric its curves by epoch, by "training" and by the names of evaluation sets.
        is_of_rank: the losses of batches are of the rows of rank 0.
    """
    metrics = metrics or {}
    import matplotlib.style
    from matplotlib.figure import Figure

    with matplotlib.style.context(STYLE, after_reset=True):  # the user's own style must not change the file
        names = [short_name(name) for name in ("training", *eval_sets)]
        below = 0.7 + 0.25 * math.ceil(len(names) / legend_columns(names))  # inches for labels and legend
        rows = [list(metrics)[i : i + 3] for i in range(0, len(metrics), 3)]
        height = 3.75 + below + len(rows) * 3
        figure = Figure(figsize=(13, height))
        # Fixed margins, because a layout engine would double the time of drawing.
        margins = {"left": 0.065, "right": 0.985, "top": 1 - 0.12 / height, "bottom": below / height}
        heights = [3.63, *[2.4] * len(rows)]
        gap = 0.6 * len(heights) / sum(heights)  # in mean heights of a panel
        grid = figure.add_gridspec(len(heights), 6, **margins, wspace=0.564, hspace=gap, height_ratios=heights)
        scale = common_scale([training, *eval_sets.values()])
        for number, by in enumerate(AXES):
            panel = figure.add_subplot(grid[0, 2 * number : 2 * number + 2])
            _draw_panel(panel, by, loss_label(by, is_of_rank), scale, training, eval_sets)
        for row, names_in_row in enumerate(rows, start=1):
            width = 6 // len(names_in_row)
            for number, name in enumerate(names_in_row):
                panel = figure.add_subplot(grid[row, width * number : width * (number + 1)])
                _draw_metric(panel, name, metrics[name], list(eval_sets))
        anchor = (0.5, (below - 0.5) / height)  # below the panels, where the legend covers no curve
        draw_legend(figure, figure.axes[0].lines, names, loc="upper center", bbox_to_anchor=anchor)
    return figure


def common_scale(sets: Sequence[Curves]) -> str:
    """Return the scale for all panels; the smooth curves by epoch decide it, once they have points."""
    smooth = [y for curves in sets for y in curves["epoch"].y]
    drawn = [y for curves in sets for curve in curves.values() for y in curve.y]
    return scale_for(smooth or drawn, drawn)


def scale_for(deciding: Iterable[float], drawn: Iterable[float]) -> str:
    """Return "log" if losses span a wide range and all are positive, otherwise "linear".

    >>> scale_for([2.3, .02], [2.3, .5, .02]), scale_for([2.3, .5], [2.3, .5]), scale_for([2.3, .02], [2.3, 0.])
    ('log', 'linear', 'linear')

    Args:
        deciding: losses without the noise of single batches.
        drawn: all losses of the figure.
    """
    finite = [value for value in deciding if math.isfinite(value)]
    if not finite or any(value <= 0 for value in (*finite, *drawn)):
        return "linear"
    return "log" if max(finite) >= LOG_FROM * min(finite) else "linear"


def legend_columns(names: Sequence[str]) -> int:
    """Return how many entries of a legend fit beside each other.

    >>> legend_columns(["training", "valid"]), legend_columns(["training", "a set with a name " * 5])
    (2, 1)
    """
    return max(1, min(len(names), 140 // (max(map(len, names)) + 10)))


def loss_label(by: str, is_of_rank: bool) -> str:
    """Return the label of the losses in a panel by "epoch", "batch" or "example"."""
    return f"loss (batches: {ROWS_OF_RANK_0})" if is_of_rank and by != "epoch" else "loss"


def part_label(name: str, is_of_rank: bool) -> str:
    """Return the label of a loss term, whose means over epochs are made of those of its batches."""
    return f"{name} (part, {ROWS_OF_RANK_0})" if is_of_rank else f"{name} (part)"


def _draw_panel(axes: Axes, by: str, label: str, scale: str, training: Curves, eval_sets: Mapping[str, Curves]) -> None:
    label_axes(axes, AXES[by], label, scale)
    noisy = NOISY_LOOK if by != "epoch" else {}
    draw_points(axes, training[by].x, training[by].y, **TRAINING_LOOK, **noisy)
    for curves, look in zip(eval_sets.values(), looks(), strict=False):
        draw_points(axes, curves[by].x, curves[by].y, **look)
    if not any(x > 0 for curves in (training, *eval_sets.values()) for x in curves[by].x):
        axes.set_xlim(-0.05, 1.05)  # before the first batch, matplotlib would zoom into the point at 0


def _draw_metric(axes: Axes, name: str, curves: Mapping[str, Curve], eval_sets: Sequence[str]) -> None:
    label_axes(axes, AXES["epoch"], name, "linear")
    look_of = {"training": TRAINING_LOOK, **dict(zip(eval_sets, looks(), strict=False))}
    for of, curve in curves.items():
        draw_points(axes, curve.x, curve.y, **look_of[of])


def label_axes(axes: Axes, x_label: str, y_label: str, scale: str) -> None:
    """Name the axes of a panel, with whole numbers on the first one and a scale on the second one."""
    from matplotlib.ticker import EngFormatter, MaxNLocator

    axes.set_yscale(scale)
    axes.set_xlabel(x_label)
    axes.set_ylabel(short_name(y_label, 30), parse_math=False)
    axes.xaxis.set_major_locator(MaxNLocator(nbins=6, integer=True))
    axes.xaxis.set_major_formatter(EngFormatter(sep=""))  # 2.5M instead of an offset in a corner
    if scale == "log":
        axes.yaxis.set_major_formatter("{x:g}")


def draw_points(axes: Axes, x: Sequence[float], y: Sequence[float], **look: Any) -> None:
    """Draw a line, with a marker at each point if there are few."""
    if len(x) > FEW_POINTS:
        look["marker"] = ""
    axes.plot(x, y, markersize=5, **look)


def draw_legend(figure: Figure, lines: Sequence[Any], names: Sequence[str], **options: Any) -> None:
    """Draw one legend for all panels."""
    legend = figure.legend(lines, names, ncols=legend_columns(names), frameon=False, **options)
    for text in legend.get_texts():
        text.set_parse_math(False)  # a `$` in a name is not mathematics


def looks() -> Iterator[dict[str, Any]]:
    """Yield colours, markers and lines that differ from each other; the line changes after the last colour."""
    for linestyle in cycle(LINE_STYLES):
        for colour, marker in zip(COLOURS, MARKERS, strict=True):
            yield {"color": colour, "marker": marker, "linestyle": linestyle}


def for_notebook(figure: Figure) -> Figure:
    """Return the figure, which a notebook shows from now on without pyplot."""
    # IPython calls this method of an object that a cell returns.
    figure._repr_png_ = partial(render_figure, figure, "png")  # type: ignore[attr-defined]
    return figure


def render_figure(figure: Figure, kind: str, style: Mapping[str, Any] = STYLE) -> bytes:
    """Return the figure as "png" or "svg". The same curves give the same bytes if the figure is new."""
    file = io.BytesIO()
    import matplotlib.style

    with matplotlib.style.context({**style}, after_reset=True), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing from font")  # names may be in any script
        figure.savefig(file, format=kind, dpi=100, metadata={"Date": None} if kind == "svg" else None)
    return file.getvalue()
