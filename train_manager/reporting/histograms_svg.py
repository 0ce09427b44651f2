"""Histograms of layers as one SVG file: a row for each layer, bright where most of its numbers are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final
from xml.sax.saxutils import escape

from train_manager.reporting.heat_map import HeatMap, heat_map, height_of
from train_manager.reporting.svg_figure import NARROW, svg_file

COLUMNS: Final = 200
Histogram = tuple[Sequence[float], Sequence[int]]
"""Edges and counts."""


def histograms_svg(histograms: Mapping[str, Histogram], sentence: str) -> str:
    """Return a picture for each kind of numbers: ``weights/0 Linear`` is a row of the picture of weights.

    Args:
        histograms: edges and counts, by kind and layer.
        sentence: what is written in place of a picture if there are none.
    """
    kinds: dict[str, dict[str, Histogram]] = {}
    for name, histogram in histograms.items():
        kind, _, label = name.partition("/")
        kinds.setdefault(kind, {})[label] = histogram
    if not kinds:
        return svg_file([f'<text x="24" y="32">{escape(sentence)}</text>'], 52, NARROW)
    parts: list[str] = []
    top = 0
    for kind, of_kind in kinds.items():
        picture = _picture(kind, of_kind)
        parts += heat_map(picture, top, NARROW)
        top += height_of(picture)
    return svg_file(parts, top, NARROW)


def only_value(edges: Sequence[float], counts: Sequence[int]) -> float | None:
    """Return the value that all numbers of a histogram have; None if there are several, or none.

    >>> only_value([0.0, 0.5, 1.0], [7, 0]), only_value([0.0, 0.5, 1.0], [6, 1])
    (0.0, None)
    """
    # The edges run from the smallest number to the largest one, so of several numbers the largest is in the last bin.
    is_one = len(counts) > 1 and counts[0] and not any(counts[1:])
    return edges[0] if is_one else None


def _picture(kind: str, histograms: Mapping[str, Histogram]) -> HeatMap:
    """Return the rows over one axis, each with 1 at its commonest value."""
    import numpy

    only = {name: only_value(*histogram) for name, histogram in histograms.items()}
    lowest = [edges[0] for edges, _ in histograms.values()]
    highest = [edges[-1] if only[name] is None else edges[0] for name, (edges, _) in histograms.items()]
    low, high = min(lowest), max(highest)
    axis = numpy.linspace(low, high if high > low else low + 1, COLUMNS + 1)
    rows = []
    for name, (edges, counts) in histograms.items():
        # The counts of other bins come from the cumulated ones, in which a number is spread evenly over its bin.
        below = numpy.concatenate([[0], numpy.cumsum(counts)])
        value = only[name]
        found = numpy.diff(numpy.interp(axis, edges, below)) if value is None else numpy.histogram([value], axis)[0]
        rows.append(found / max(1e-300, found.max()))
    title = f"{kind} at the last look; 1 is the commonest value of a layer"
    columns = numpy.stack(rows, axis=1).tolist()
    return HeatMap(title, [*histograms], axis[1:].tolist(), columns, "linear", "value", float(low), (0.0, 1.0))
