"""Numbers of layers over the steps as one SVG file: lines for up to 8 layers, a heat map for more."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Final, NamedTuple
from xml.sax.saxutils import escape

import torch

from train_manager.metrics.layer_series import LayerSeries
from train_manager.metrics.windows import thin_out
from train_manager.reporting.heat_map import HeatMap, heat_map, height_of, short_labels
from train_manager.reporting.loss_figure import LOG_FROM, looks
from train_manager.reporting.svg_figure import NARROW, Line, Panel, columns_of_legend, svg, svg_file

FEW_LAYERS: Final = 8
MOST_POINTS: Final = 400
HEIGHT: Final = 260


class Shown(NamedTuple):
    """The content of a picture of layers."""

    title: str
    labels: list[str]  # names of the layers
    steps: list[float]
    values: list[list[float]]  # for each layer its values at the steps


def layers_svg(series: Mapping[str, LayerSeries], sentence: str, ends: tuple[float, float] | None = None) -> str:
    """Return the picture of columns, by their names.

    Args:
        series: the columns; norms with counts are shown as root mean squares.
        sentence: the text in place of a picture if no number is above 0.
        ends: the ends of a linear scale; None draws logarithms if the values differ more than twentyfold.
    """
    shown = [found for found in (_content_of(name, columns) for name, columns in series.items()) if _has_any(found)]
    if not shown:
        return svg_file([f'<text x="24" y="32">{escape(sentence)}</text>'], 52, NARROW)
    if all(len(each.labels) <= FEW_LAYERS for each in shown):
        return _lines(shown, ends)
    parts: list[str] = []
    top = 0
    for each in shown:
        scale = "linear" if ends else _scale(each.values)
        columns = list(zip(*each.values, strict=True))
        picture = HeatMap(each.title, each.labels, each.steps, columns, scale, ends=ends)
        parts += heat_map(picture, top, NARROW)
        top += height_of(picture)
    return svg_file(parts, top, NARROW)


def _lines(shown: Sequence[Shown], ends: tuple[float, float] | None) -> str:
    names = list(dict.fromkeys(label for each in shown for label in each.labels))
    look_of = dict(zip(names, looks(), strict=False))
    panels = []
    for each in shown:
        scale = "linear" if ends else _scale(each.values)
        # A logarithmic scale has no place for 0: the line gets a gap there.
        can_show: Callable[[float], bool] = (lambda value: value > 0) if scale == "log" else (lambda value: True)
        rows = [[value if can_show(value) else math.nan for value in values] for values in each.values]
        lines = [Line(look_of[label], each.steps, row) for label, row in zip(each.labels, rows, strict=True)]
        panels.append(Panel("steps", each.title, scale, lines))
    short = short_labels(names)
    legend = [*zip(short, look_of.values(), strict=True)]
    return svg([(HEIGHT, [panel]) for panel in panels], legend, columns_of_legend(short, NARROW), NARROW)


def _content_of(title: str, columns: LayerSeries) -> Shown:
    shown = thin_out(columns.full, MOST_POINTS)
    means = torch.from_numpy(shown.means)
    if columns.counts:
        means = means / torch.tensor(columns.counts, dtype=torch.float).sqrt()
        title = f"{title}, RMS"
    return Shown(title.replace("_", " "), columns.labels, shown.steps.astype(float).tolist(), means.T.tolist())


def _has_any(shown: Shown) -> bool:
    return any(value > 0 for values in shown.values for value in values)


def _scale(values: Sequence[Sequence[float]]) -> str:
    found = [value for each in values for value in each if math.isfinite(value) and value > 0]
    return "log" if found and max(found) >= LOG_FROM * min(found) else "linear"
