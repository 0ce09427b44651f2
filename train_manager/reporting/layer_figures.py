"""Numbers of layers as figures of matplotlib: lines for few layers, a heat map for many, and histograms."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from train_manager.metrics.windows import thin_out
from train_manager.reporting.figures import (
    LINE,
    ON_ANY_PAPER,
    ROUND,
    draw_image,
    new_figure,
    panels_figure,
    sentence_figure,
    set_log_ticks,
    styled,
)
from train_manager.reporting.panels import (
    LABEL_LETTERS,
    LOG_FROM,
    NARROW,
    Line,
    Panel,
    Panels,
    looks,
    short_labels,
    tick_text,
)
from train_manager.reporting.values import short_name

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from train_manager.metrics.layer_series import LayerSeries

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
BINS: Final = 200
Histogram = tuple[Sequence[float], Sequence[int]]
"""Edges and counts."""


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


def layers_figure(series: Mapping[str, LayerSeries], sentence: str, ends: tuple[float, float] | None = None) -> Figure:
    """Return the picture of columns, by their names: lines for up to 8 layers, heat maps for more.

    Args:
        series: the columns; norms with counts are shown as root mean squares.
        sentence: the text in place of a picture if no number is above 0.
        ends: the ends of a linear scale; None draws logarithms if the values differ more than twentyfold.
    """
    found = [_content_of(name, columns, ends) for name, columns in series.items()]
    shown = [each for each in found if any(value > 0 for row in each.values for value in row)]
    if not shown:
        return sentence_figure(sentence)
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


def activation_figures(series: Mapping[str, LayerSeries], none: str) -> dict[str, Figure]:
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
    return figures or {"statistics": sentence_figure(none)}


def _content_of(name: str, columns: LayerSeries, ends: tuple[float, float] | None) -> HeatMap:
    windows = thin_out(columns.full, MOST_POINTS)
    means = windows.means
    title = name.replace("_", " ")
    if columns.counts:
        means = means / np.sqrt(columns.counts)
        title = f"{title}, RMS"
    return HeatMap(title, columns.labels, windows.steps.astype(float).tolist(), means.T.tolist(), ends)


def _labels(labels: Sequence[str]) -> list[str]:
    return [short_name(label, LABEL_LETTERS) for label in short_labels(labels)]


def _heat_maps(maps: Sequence[HeatMap]) -> Figure:
    with styled(ON_ANY_PAPER):
        heights = [each.height for each in maps]
        figure = new_figure(NARROW, sum(heights) + 5 * LINE * len(heights))  # for titles, axes and their names
        panels = figure.subplots(len(maps), 1, squeeze=False, height_ratios=heights)[:, 0]
        for axes, each in zip(panels, maps, strict=True):
            _draw_heat_map(figure, axes, each)
    return figure


def _draw_heat_map(figure: Figure, axes: Axes, shown: HeatMap) -> None:
    from matplotlib.ticker import MaxNLocator

    norm, values = _colours_of(shown)
    # The map has a fixed number of columns of equal width; each shows the values at its right edge.
    right_edges = np.linspace(shown.x_low, shown.x[-1], MOST_COLUMNS + 1)[1:]
    at = np.searchsorted(shown.x, right_edges - 1e-9).clip(max=len(shown.x) - 1)
    extent = (shown.x_low, shown.x[-1], len(shown.labels) - 0.5, -0.5)
    image = draw_image(axes, values[:, at], norm=norm, extent=extent)
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


def _colours_of(shown: HeatMap) -> tuple[Any, Any]:
    """Return the scale of colours, and the values within its ends, so that infinity gets the last colour."""
    from matplotlib.colors import LogNorm, Normalize

    values, is_log = np.array(shown.values), shown.scale == "log"
    found = values[np.isfinite(values) & ((values > 0) | (not is_log))]
    low, high = shown.ends or ((found.min(), found.max()) if found.size else (0.1, 1.0))
    low = max(low, high / MOST_RATIO) if is_log else low
    return (LogNorm if is_log else Normalize)(low, high), values.clip(low, high)


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
    return _heat_maps([_map_of(kind, found) for kind, found in kinds.items()]) if kinds else sentence_figure(sentence)


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

    only = {name: only_value(*histogram) for name, histogram in histograms.items()}
    low = min(edges[0] for edges, _ in histograms.values())
    high = max(edges[-1] if only[name] is None else edges[0] for name, (edges, _) in histograms.items())
    axis = np.linspace(low, high if high > low else low + 1, BINS + 1)
    rows = []
    for name, (edges, counts) in histograms.items():
        # The counts of other bins come from the cumulated ones, in which a number is spread evenly over its bin.
        below = np.concatenate([[0], np.cumsum(counts)])
        value = only[name]
        found = np.diff(np.interp(axis, edges, below)) if value is None else np.histogram([value], axis)[0]
        rows.append((found / max(1e-300, found.max())).tolist())
    title = f"{kind} at the last look; 1 is the commonest value of a layer"
    return HeatMap(title, [*histograms], axis[1:].tolist(), rows, SHARE, "value", float(low))
