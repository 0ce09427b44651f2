"""What figures of matplotlib show, and whether it can be read."""

from __future__ import annotations

import xml.etree.ElementTree as ET

import torch
from matplotlib.axis import Axis
from matplotlib.figure import Figure
from matplotlib.text import Text

from train_manager.metrics.layer_series import LayerSeries
from train_manager.reporting.evaluation_figures import ShownExamples
from train_manager.reporting.figures import render_figure

TEXT = "{http://www.w3.org/2000/svg}text"


def columns_of(layers: int, steps: int = 50, value: float = 1.0, label: str = "net.{} Linear") -> LayerSeries:
    """The numbers of so many layers, the same at each step."""
    columns = LayerSeries([label.format(number) for number in range(layers)])
    for step in range(1, steps + 1):
        columns.append(torch.full((layers,), value) * torch.arange(1, layers + 1), step, weight=64)
    columns.take()
    return columns


def examples_of(inputs: torch.Tensor) -> ShownExamples:
    """Examples with predictions of three classes, some of them right."""
    numbers = torch.arange(len(inputs))
    return {"inputs": inputs, "said": numbers % 2, "true": numbers % 3, "sure": numbers / 8, "place": numbers}


def texts_of(figure: Figure) -> list[str]:
    """All texts of the SVG file."""
    return [text.text or "" for text in ET.fromstring(render_figure(figure, "svg")).iter(TEXT)]


def overlaps(figure: Figure) -> list[tuple[str, str]]:
    """Pairs of texts that cover each other, and texts that are cut off at the edge."""
    figure.draw_without_rendering()
    all_axes = [part for axes in figure.axes for part in (axes, *axes.child_axes)]
    axes_of = [axis for axes in all_axes for axis in (axes.xaxis, axes.yaxis)]
    ticks = [tick for axis in axes_of for tick in axis.get_major_ticks() if _is_in_view(axis, tick.get_loc())]
    texts = [label for tick in ticks for label in (tick.label1, tick.label2) if label.get_visible()]
    texts += [axis.label for axis in axes_of]
    texts += [part for axes in all_axes for part in axes.get_children() if isinstance(part, Text)]
    texts += [text for part in (figure, *figure.subfigs) for text in part.texts]
    texts += [text for legend in figure.legends for text in legend.get_texts()]
    boxes = [(text.get_text(), text.get_window_extent()) for text in texts if text.get_text() and text.get_visible()]
    inside = [(a, b) for i, (a, box) in enumerate(boxes) for b, other in boxes[:i] if box.overlaps(other)]
    width, height = figure.bbox.size
    cut = [(a, "edge") for a, box in boxes if box.x0 < 0 or box.y0 < 0 or box.x1 > width or box.y1 > height]
    return inside + cut


def _is_in_view(axis: Axis, place: float) -> bool:
    low, high = sorted(axis.get_view_interval())
    return bool(low <= place <= high)


def contrast(*colours: str) -> float:
    """The ratio of the luminances of two colours, as the W3C's guidelines define it: from 1 to 21."""
    light = []
    for colour in colours:
        parts = [part / 255 for part in bytes.fromhex(colour[1:])]
        red, green, blue = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
        light.append(0.2126 * red + 0.7152 * green + 0.0722 * blue + 0.05)
    return max(light) / min(light)
