"""Figures of matplotlib, which is imported only when a figure is drawn: lines, heat maps, matrices and galleries.

A figure that a user gets is dark on white. A picture of layers or of an evaluation, which a notebook shows as SVG, has
no paper, and colours that can be read on a light and on a dark page.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from io import BytesIO
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import torch
from torch import Tensor

from train_manager.metrics.column_windows import Column, joined
from train_manager.metrics.columns import Columns
from train_manager.reporting.panels import (
    FEW_POINTS,
    LABEL_LETTERS,
    LOG_FROM,
    NARROW,
    Line,
    Panel,
    Panels,
    legend_columns,
    looks,
    short_labels,
    tick_text,
)
from train_manager.reporting.pictures import pictures_of
from train_manager.reporting.values import short_name

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis
    from matplotlib.figure import Figure

Style = Mapping[str, Any]
"""Settings of matplotlib by their names."""

STYLE: Final = {
    "axes.grid": True,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.titlelocation": "left",
    "font.size": 11,
    "grid.alpha": 0.3,
    "svg.fonttype": "none",  # letters and not their outlines: a browser finds them, and has those of all scripts
    "svg.hashsalt": "train_manager",  # fixed, because matplotlib's ids in the file are random otherwise
    "text.parse_math": False,  # a `$` in a name is not mathematics
}
GREY: Final = "#7a7a7a"  # its contrast is 4.3 to white, and 4.3 to the dark paper of notebooks
ON_ANY_PAPER: Final = {
    **STYLE,
    **dict.fromkeys(("axes.edgecolor", "axes.labelcolor", "text.color", "xtick.color", "ytick.color"), GREY),
    **dict.fromkeys(("axes.facecolor", "figure.facecolor"), "none"),
    "axes.titlesize": "medium",
    "font.size": 10,
    "grid.color": GREY,
}
INCH: Final = 100  # pixels
LETTER: Final = 9  # pixels of the width of a letter, the widest ones aside
MOST_FOR_THREE: Final = 1e3  # ratio of the ends of an axis up to which each decade has ticks at 1, 2 and 5
ROUND: Final = (1, 2, 5, 10)  # ticks are multiples of these times a power of ten
LINE: Final = 16  # pixels of the height of a line of text


def panels_figure(picture: Panels, style: Style = STYLE) -> Figure:
    """Return panels of lines, and below them one legend for all."""
    from matplotlib.lines import Line2D

    with _styled(style):
        figure = _figure(picture.width, picture.height)
        heights = [height for height, _ in picture.rows]
        grid = figure.add_gridspec(max(1, len(heights)), 6, height_ratios=heights or None)  # 6: for 1, 2 or 3 panels
        for row, (_, panels) in enumerate(picture.rows):
            width = 6 // len(panels)
            for number, panel in enumerate(panels):
                _draw_panel(figure.add_subplot(grid[row, width * number : width * (number + 1)]), panel)
        names = [name for name, _ in picture.legend]
        lines = [Line2D([], [], markersize=5, **look) for _, look in picture.legend]
        if names:
            columns = legend_columns(names, picture.width)
            figure.legend(lines, names, ncols=columns, frameon=False, loc="outside lower center")
    return figure


def set_log_ticks(axis: Axis) -> None:
    """Give a logarithmic axis plain numbers: those of matplotlib are mathematics, and one in a decade at most."""
    from matplotlib.ticker import LogLocator, NullFormatter

    low, high = axis.get_view_interval()
    if high < MOST_FOR_THREE * low:
        axis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axis.set_major_formatter(lambda value, _: tick_text(value))
    axis.set_minor_formatter(NullFormatter())


def for_notebook(figure: Figure) -> Figure:
    """Return the figure, which a notebook shows from now on without pyplot."""
    # IPython calls this method of an object that a cell returns.
    figure._repr_png_ = partial(render_figure, figure, "png")  # type: ignore[attr-defined]
    return figure


def render_figure(figure: Figure, kind: str, style: Style = STYLE) -> bytes:
    """Return the figure as "png" or "svg". The same content gives the same bytes if the figure is new."""
    file = BytesIO()
    with _styled(style), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing from font")  # names may be in any script
        metadata = {"Date": None, "Creator": None} if kind == "svg" else None
        figure.savefig(file, format=kind, dpi=INCH, metadata=metadata)
    return file.getvalue()


@contextmanager
def _styled(style: Style) -> Iterator[None]:
    import matplotlib.style

    with matplotlib.style.context({**style}, after_reset=True):  # the user's own style must not change the picture
        yield


def _figure(width: float, height: float, layout: Any = "constrained") -> Figure:
    """Return an empty figure of so many pixels."""
    from matplotlib.figure import Figure

    return Figure(figsize=(width / INCH, height / INCH), layout=layout)


def _sentence(text: str) -> Figure:
    """Return a text in place of a picture."""
    with _styled(ON_ANY_PAPER):
        figure = _figure(NARROW, 52, layout=None)
        figure.text(24 / NARROW, 0.5, text, va="center")
    return figure


def _draw_panel(axes: Axes, panel: Panel) -> None:
    from matplotlib.ticker import MaxNLocator

    for line in panel.lines:
        look = dict(line.look)
        if len(line.x) > FEW_POINTS:
            look["marker"] = ""
        axes.plot(line.x, line.y, markersize=5, **look)
    if panel.scale == "log":
        axes.set_yscale("log", nonpositive="mask")  # a gap where a value is 0
        set_log_ticks(axes.yaxis)
    axes.set(xlabel=panel.x_label, ylabel=short_name(panel.y_label, LABEL_LETTERS))
    axes.xaxis.set_major_locator(MaxNLocator(nbins=6, steps=ROUND, integer=True))
    axes.xaxis.set_major_formatter(lambda value, _: tick_text(value))


# ---- numbers of layers -----------------------------------------------------------------------------------------------

FEW_LAYERS: Final = 8
MOST_POINTS: Final = 400
MOST_COLUMNS: Final = 400
MOST_RATIO: Final = 1e8  # of the ends of a logarithmic scale; smaller values all get the darkest colour
LAYERS_HEIGHT: Final = 260  # pixels of a panel of lines
SHARE: Final = (0.0, 1.0)
NO_STATISTIC: Final = {
    "activation_spread": "no spread",
    "dead_units": "no dead unit",
    "saturated": "no saturated number",
}


class HeatMap(NamedTuple):
    """A row of values for each layer.

    Attributes:
        title: what is shown.
        labels: the names of the layers.
        x: where each column of values ends.
        values: for each layer its values; nan where there is none, which is grey.
        ends: the ends of a linear scale; None takes them from the values.
        x_label: what ``x`` counts.
        x_low: where the first column begins.
    """

    title: str
    labels: Sequence[str]
    x: Sequence[float]
    values: Sequence[Sequence[float]]
    ends: tuple[float, float] | None = None
    x_label: str = "steps"
    x_low: float = 0.0

    @property
    def height(self) -> int:
        """The pixels of the map, without its title and its axis."""
        return max(60, min(560, 22 * len(self.labels)))

    @property
    def scale(self) -> str:
        """The scale of the values: "log", which shows values above 0 only, if they span a wide range."""
        found = [value for row in self.values for value in row if math.isfinite(value) and value > 0]
        is_wide = self.ends is None and found and max(found) >= LOG_FROM * min(found)
        return "log" if is_wide else "linear"


def layers_figure(series: Mapping[str, Columns], sentence: str, ends: tuple[float, float] | None = None) -> Figure:
    """Return the picture of columns, by their names: lines for up to 8 layers, heat maps for more.

    Args:
        series: the columns; norms with counts are shown as root mean squares.
        sentence: the text in place of a picture if no number is above 0.
        ends: the ends of a linear scale; None draws logarithms if the values differ more than twentyfold.
    """
    found = [_content_of(name, columns, ends) for name, columns in series.items()]
    shown = [each for each in found if any(value > 0 for row in each.values for value in row)]
    if not shown:
        return _sentence(sentence)
    if any(len(each.labels) > FEW_LAYERS for each in shown):
        return _heat_maps(shown)
    names = list(dict.fromkeys(label for each in shown for label in each.labels))
    look_of = dict(zip(names, looks(), strict=False))
    rows = []
    for each in shown:
        lines = [Line(look_of[name], each.x, row) for name, row in zip(each.labels, each.values, strict=True)]
        rows.append((LAYERS_HEIGHT, [Panel("steps", each.title, each.scale, lines)]))
    legend = [*zip(_labels(names), look_of.values(), strict=True)]
    return panels_figure(Panels(rows, legend, NARROW), ON_ANY_PAPER)


def activation_figures(series: Mapping[str, Columns], none: str) -> dict[str, Figure]:
    """Return the picture of each statistic by its name; shares are drawn from 0 to 1.

    Args:
        series: the statistics.
        none: the sentence in place of a picture if there are no statistics.
    """
    figures = {}
    for name, columns in series.items():
        statistic = name.partition(" ")[0]  # "dead_units (2)": layers that were found later
        sentence = f"{NO_STATISTIC[statistic]} in {len(columns.labels)} layers"
        ends = None if statistic == "activation_spread" else SHARE
        figures[name] = layers_figure({name: columns}, sentence, ends)
    return figures or {"statistics": _sentence(none)}


def thin_out(columns: Sequence[Column], most: int = MOST_POINTS) -> list[Column]:
    """Return at most so many columns, joined by examples, so that the small last batch of an epoch is not a spike.

    >>> column = Column(1, 64.0, torch.tensor([1.0]), torch.tensor([1.0]))
    >>> [joined.weight for joined in thin_out([column, column._replace(weight=3.0), column])]
    [64.0, 67.0]
    """
    if not columns:
        return []
    weights = [column.weight for column in columns]
    enough = max(max(weights) / 2, sum(weights) / most)
    groups: list[list[Column]] = [[]]
    for column in columns:
        if sum(each.weight for each in groups[-1]) >= enough:
            groups.append([])
        groups[-1].append(column)
    # The last group may be too small: it goes to the one before.
    if len(groups) > 1 and sum(each.weight for each in groups[-1]) < enough:
        groups[-2:] = [groups[-2] + groups[-1]]
    return [joined(group)[0] for group in groups]


def _content_of(name: str, columns: Columns, ends: tuple[float, float] | None) -> HeatMap:
    rows = thin_out(columns.rows)
    means = torch.stack([column.mean for column in rows]) if rows else torch.zeros(0, len(columns.labels))
    title = name.replace("_", " ")
    if columns.counts:
        means = means / torch.tensor(columns.counts, dtype=torch.float).sqrt()
        title = f"{title}, RMS"
    return HeatMap(title, columns.labels, [float(column.step) for column in rows], means.T.tolist(), ends)


def _labels(labels: Sequence[str]) -> list[str]:
    """Return short names of layers; a long one loses its beginning."""
    cut = short_labels(labels)
    return [label if len(label) <= LABEL_LETTERS else f"…{label[1 - LABEL_LETTERS :]}" for label in cut]


def _heat_maps(maps: Sequence[HeatMap]) -> Figure:
    with _styled(ON_ANY_PAPER):
        heights = [each.height for each in maps]
        figure = _figure(NARROW, sum(heights) + 5 * LINE * len(heights))  # for titles, axes and their names
        panels = figure.subplots(len(maps), 1, squeeze=False, height_ratios=heights)[:, 0]
        for axes, each in zip(panels, maps, strict=True):
            _draw_heat_map(figure, axes, each)
    return figure


def _draw_heat_map(figure: Figure, axes: Axes, shown: HeatMap) -> None:
    import numpy
    from matplotlib.ticker import MaxNLocator

    norm, values = _norm_of(shown)
    # The map has a fixed number of columns of equal width; each shows the values at its right edge.
    right_edges = numpy.linspace(shown.x_low, shown.x[-1], MOST_COLUMNS + 1)[1:]
    at = numpy.searchsorted(shown.x, right_edges - 1e-9).clip(max=len(shown.x) - 1)
    extent = (shown.x_low, shown.x[-1], len(shown.labels) - 0.5, -0.5)
    image = _draw_image(axes, values[:, at], norm=norm, extent=extent)
    # Names that would overlap are left out.
    every = math.ceil(len(shown.labels) * LINE / shown.height)
    axes.set_yticks(range(0, len(shown.labels), every), _labels(shown.labels)[::every])
    axes.set(title=shown.title, xlabel=shown.x_label)
    axes.xaxis.set_major_locator(MaxNLocator(nbins=6, steps=ROUND, integer=shown.x_label == "steps"))
    axes.xaxis.set_major_formatter(lambda value, _: tick_text(value))
    bar = figure.colorbar(image, ax=axes, pad=0.02, aspect=shown.height / 14, format=lambda value, _: tick_text(value))
    bar.outline.set_visible(False)
    if shown.scale == "log":
        set_log_ticks(bar.ax.yaxis)
    else:
        bar.ax.yaxis.set_major_locator(MaxNLocator(nbins=max(1, min(6, shown.height // (2 * LINE))), steps=ROUND))


def _norm_of(shown: HeatMap) -> tuple[Any, Any]:
    """Return the scale of colours, and the values within its ends: infinity gets the first or last colour."""
    import numpy
    from matplotlib.colors import LogNorm, Normalize

    values, is_log = numpy.array(shown.values), shown.scale == "log"
    found = values[numpy.isfinite(values) & ((values > 0) | (not is_log))]
    low, high = shown.ends or ((found.min(), found.max()) if found.size else (0.1, 1.0))
    if is_log:
        low = max(low, high / MOST_RATIO)
        values = numpy.where(values < 0, numpy.nan, values)
    # All values are equal: a scale around them, so that nothing is divided by zero.
    low, high = (low, high) if low < high else (low - 0.5, high + 0.5)
    return (LogNorm if is_log else Normalize)(low, high), values.clip(low, high)


def _draw_image(axes: Axes, values: Any, **options: Any) -> Any:
    """Draw values as colours, which people can distinguish who do not see red or green; nan is grey."""
    import matplotlib

    colours = matplotlib.colormaps["viridis"].with_extremes(bad="#808080")
    axes.grid(visible=False)
    axes.spines[:].set_visible(False)
    return axes.imshow(values, cmap=colours, interpolation="none", **{"aspect": "auto", **options})


# ---- histograms ------------------------------------------------------------------------------------------------------

BINS: Final = 200
Histogram = tuple[Sequence[float], Sequence[int]]
"""Edges and counts."""


def histograms_figure(histograms: Mapping[str, Histogram], sentence: str) -> Figure:
    """Return a heat map for each kind of numbers: ``weights/0 Linear`` is a row of the map of weights.

    Args:
        histograms: edges and counts, by kind and layer.
        sentence: the text in place of a picture if there are none.
    """
    kinds: dict[str, dict[str, Histogram]] = {}
    for name, histogram in histograms.items():
        kind, _, label = name.partition("/")
        kinds.setdefault(kind, {})[label] = histogram
    return _heat_maps([_map_of(kind, found) for kind, found in kinds.items()]) if kinds else _sentence(sentence)


def only_value(edges: Sequence[float], counts: Sequence[int]) -> float | None:
    """Return the value that all numbers of a histogram have; None if there are several, or none.

    >>> only_value([0.0, 0.5, 1.0], [7, 0]), only_value([0.0, 0.5, 1.0], [6, 1])
    (0.0, None)
    """
    # The edges run from the smallest number to the largest one, so of several numbers the largest is in the last bin.
    is_one = len(counts) > 1 and counts[0] and not any(counts[1:])
    return edges[0] if is_one else None


def _map_of(kind: str, histograms: Mapping[str, Histogram]) -> HeatMap:
    """Return the rows over one axis, each with 1 at its commonest value."""
    import numpy

    only = {name: only_value(*histogram) for name, histogram in histograms.items()}
    low = min(edges[0] for edges, _ in histograms.values())
    high = max(edges[-1] if only[name] is None else edges[0] for name, (edges, _) in histograms.items())
    axis = numpy.linspace(low, high if high > low else low + 1, BINS + 1)
    rows = []
    for name, (edges, counts) in histograms.items():
        # The counts of other bins come from the cumulated ones, in which a number is spread evenly over its bin.
        below = numpy.concatenate([[0], numpy.cumsum(counts)])
        value = only[name]
        found = numpy.diff(numpy.interp(axis, edges, below)) if value is None else numpy.histogram([value], axis)[0]
        rows.append((found / max(1e-300, found.max())).tolist())
    title = f"{kind} at the last look; 1 is the commonest value of a layer"
    return HeatMap(title, [*histograms], axis[1:].tolist(), rows, SHARE, "value", float(low))


# ---- evaluations -----------------------------------------------------------------------------------------------------

NO_EVALUATION: Final = "there was no evaluation so far"
MATRIX: Final = 620  # pixels of a matrix at most
CLASS_LETTERS: Final = 20  # letters of the name of a class
MOST_UPRIGHT: Final = 3  # letters up to which names of columns are not turned
MOST_TEXTS: Final = 20  # classes whose counts are written into their cells
BRIGHT: Final = 0.6  # share of a row from which the cell is so bright that its text is dark
EXAMPLES_IN_A_ROW: Final = 4
EXAMPLE: Final = 130  # pixels of the longer side of an example
CAPTION: Final = 44  # pixels below an example, for two lines of text
Examples = Mapping[str, Tensor]
"""``inputs``, ``said``, ``true``, ``sure`` and ``place`` of examples."""


def confusion_figure(matrices: Mapping[str, Sequence[Sequence[int]]], names: Sequence[str]) -> Figure:
    """Return the matrices of evaluation sets below each other, with the recall and the precision of each class.

    Args:
        matrices: counts by true and by predicted class, of each set.
        names: of the classes, or none.
    """
    if not matrices:
        return _sentence(NO_EVALUATION)
    shown = [_Matrix(name, matrix, names) for name, matrix in matrices.items()]
    sizes = [matrix.cell * len(matrix.classes) for matrix in shown]
    letters = max(len(text) for matrix in shown for text in matrix.classes)
    letters += max(len(text) for matrix in shown for text in matrix.rates)
    with _styled(ON_ANY_PAPER):
        # 7 lines are for the title and the names of columns.
        figure = _figure(max(NARROW, max(sizes) + LETTER * letters), sum(sizes) + 7 * LINE * len(sizes))
        panels = figure.subplots(len(sizes), 1, squeeze=False, height_ratios=sizes)[:, 0]
        for axes, matrix in zip(panels, shown, strict=True):
            _draw_matrix(axes, matrix)
    return figure


def gallery_figure(sets: Mapping[str, Examples], names: Sequence[str]) -> Figure:
    """Return the examples of evaluation sets below each other; ``names`` has the names of the classes, or none."""
    if not any(sets.values()):
        return _sentence(NO_EVALUATION)
    pictures = {name: pictures_of(examples["inputs"]).cpu() for name, examples in sets.items()}
    heights = [34 + _rows_of(found) * (_size(found)[1] + CAPTION) for found in pictures.values()]
    with _styled(ON_ANY_PAPER):
        figure = _figure(NARROW, sum(heights), layout=None)
        parts = figure.subfigures(len(heights), 1, squeeze=False, height_ratios=heights)[:, 0]
        for part, height, (name, examples) in zip(parts, heights, sets.items(), strict=True):
            mistakes = int((examples["said"] != examples["true"]).sum())
            shown = f"{name}: the surest mistakes, then random examples" if mistakes else f"{name}: random examples"
            part.text(14 / NARROW, 1 - 20 / height, shown)
            _draw_examples(part, height, pictures[name], examples, names)
    return figure


def caption(examples: Examples, number: int, names: Sequence[str]) -> list[str]:
    """Return the prediction for an example and its confidence, and the true class.

    >>> import torch
    >>> examples = {name: torch.tensor([value]) for name, value in (("said", 1), ("true", 0), ("sure", 0.75))}
    >>> caption(examples, 0, ["cat", "dog"])
    ['dog, 75%', 'is cat']
    """
    said, true = (int(examples[which][number]) for which in ("said", "true"))
    texts = [short_name(names[one], 16) if 0 <= one < len(names) else str(one) for one in (said, true)]
    sure = f"{texts[0]}, {float(examples['sure'][number]):.0%}"
    return [sure, "of no class" if true < 0 else "right" if said == true else f"is {texts[1]}"]


class _Matrix:
    """A matrix of counts, and the texts beside it."""

    def __init__(self, name: str, matrix: Sequence[Sequence[int]], names: Sequence[str]) -> None:
        import numpy

        self.title = f"{name}: true class by row, predicted class by column"
        self.counts = numpy.array(matrix)
        self.totals = self.counts.sum(1)
        numbers = [str(number) for number in range(len(matrix))]
        self.classes = [short_name(each, CLASS_LETTERS) for each in (names if len(names) == len(matrix) else numbers)]
        self.rates = [*map(_rates, self.totals, self.counts.sum(0), self.counts.diagonal())]
        self.cell = max(2.0, min(44.0, MATRIX / len(matrix)))  # pixels


def _rates(total: int, said: int, right: int) -> str:
    """Return the recall and the precision of a class."""
    found = f"{right / total:.1%} of {total:,} found" if total else "none there"
    held = f"{right / said:.1%} of {said:,} right" if said else "never said"
    return f"{found}, {held}"


def _draw_matrix(axes: Axes, matrix: _Matrix) -> None:
    import numpy

    # Colours show the share of a true class, so that rare classes are seen as well as frequent ones. A class without
    # examples is grey.
    totals = matrix.totals[:, None]
    shares = numpy.where(totals > 0, matrix.counts / totals.clip(1), numpy.nan)
    _draw_image(axes, shares, vmin=0, vmax=1, aspect="equal")
    axes.set_title(matrix.title)
    axes.set_anchor("W")
    axes.tick_params(length=0)
    # Names that would overlap are left out.
    every = max(1, math.ceil(LINE / matrix.cell))
    shown = range(0, len(matrix.classes), every)
    axes.set_yticks(shown, matrix.classes[::every])
    axes.xaxis.tick_top()
    columns = [short_name(name, 8) for name in matrix.classes[::every]]
    axes.set_xticks(shown, columns, rotation=90 if max(map(len, columns)) > MOST_UPRIGHT else 0)
    beside = axes.secondary_yaxis("right")
    beside.set_yticks(shown, matrix.rates[::every])
    beside.tick_params(length=0)
    beside.spines[:].set_visible(False)
    if len(matrix.classes) > MOST_TEXTS:
        return
    size = min(9.0, matrix.cell / max(map(len, map(str, matrix.counts.flat))))
    for row, column in zip(*matrix.counts.nonzero(), strict=True):
        colour = "#111111" if shares[row, column] > BRIGHT else "#ffffff"
        text = str(matrix.counts[row, column])
        axes.text(column, row, text, color=colour, fontsize=size, ha="center", va="center")


def _draw_examples(part: Any, height: float, pictures: Tensor, examples: Examples, names: Sequence[str]) -> None:
    step, (wide, high) = 1 / EXAMPLES_IN_A_ROW, _size(pictures)
    for number, picture in enumerate(pictures):
        centre = (number % EXAMPLES_IN_A_ROW + 0.5) * step
        bottom = 1 - (34 + high + number // EXAMPLES_IN_A_ROW * (high + CAPTION)) / height
        axes = part.add_axes((centre - wide / NARROW / 2, bottom, wide / NARROW, high / height))
        axes.set_axis_off()
        pixels = picture.permute(1, 2, 0) if len(picture) == 3 else picture[0]
        axes.imshow(pixels.numpy(), cmap="gray", vmin=0, vmax=1, interpolation="none", aspect="auto")
        text = "\n".join(caption(examples, number, names))
        part.text(centre, bottom - 3 / height, text, ha="center", va="top", fontsize=9.5)


def _rows_of(pictures: Tensor) -> int:
    return math.ceil(len(pictures) / EXAMPLES_IN_A_ROW)


def _size(pictures: Tensor) -> tuple[float, float]:
    """Return the drawn width and height of each picture; a picture of one line is drawn at least 16 pixels high."""
    height, width = pictures.shape[-2:]
    scale = EXAMPLE / max(height, width)
    return width * scale, max(16.0, height * scale)


# ---- speed -----------------------------------------------------------------------------------------------------------

SPEED_HEIGHT: Final = 240  # pixels of a panel
SPEEDS: Final = {
    "examples_per_second": ("examples per second", 1.0),
    "waiting_share": ("waiting for data, %", 100.0),
    "peak_memory": ("peak of memory, GB", 1e-9),
}


def speed_figure(curves: Mapping[str, tuple[Sequence[float], Sequence[float]]]) -> Figure:
    """Return a panel for each metric of the speed; each curve has steps and values."""
    if not curves:
        return _sentence("nothing was measured so far")
    look = next(looks())
    rows = []
    for name, (steps, values) in curves.items():
        label, factor = SPEEDS.get(name, (name, 1.0))
        line = Line(look, steps, [factor * value for value in values])
        rows.append((SPEED_HEIGHT, [Panel("steps", label, "linear", [line])]))
    return panels_figure(Panels(rows, [], NARROW), ON_ANY_PAPER)
