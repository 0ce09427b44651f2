"""The numbers of layers, of all steps: as curves where there are few layers, and as heat maps."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate
from types import MappingProxyType
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from train_manager.reporting.layer_figures import only_value
from train_manager.reporting.panels import short_labels
from train_manager.runs.comparing.measured import name_of
from train_manager.runs.showing.curves import DrawnCurve, Plot, has_band, rounded, whole
from train_manager.runs.store.curves import MOST, Curve, SeriesRows, SmallBatches, curve_of
from train_manager.runs.store.rows import StoredArray
from train_manager.runs.store.schema import Series

LARGEST, COUNTS = "_largest", "_counts"
"""Ends of names of arrays that complete another array: the largest value of a window, the numbers counted by a norm."""
LINES: Final = 8  # up to so many layers are drawn as curves: a heat map of few rows shows little
CELLS: Final = 120_000  # cells of all heat maps of a run
MOST_COLUMNS: Final = 300
MIDDLE: Final = (0.05, 0.5, 0.95)  # the quantiles of a histogram that a curve shows

Arrays = Mapping[Series, Sequence[StoredArray]]
Histograms = Mapping[Series, Sequence[tuple[int, list[float], list[int]]]]
Values = NDArray[np.float64]
"""For each step a value for each layer."""


class Layers(NamedTuple):
    """Vectors of one series, with a value for each layer."""

    name: str  # of the series, with its phase
    labels: Sequence[str]  # names of the layers
    steps: NDArray[np.int64]
    values: Values
    low: Values | None = None  # likewise the lowest values; None if they are not known
    high: Values | None = None  # likewise the highest values
    counts: Sequence[float] = ()  # how many numbers the norm of each layer sums up; empty if the values are not norms
    is_size: bool = False  # whether 0 means an empty layer, so that a log scale is possible in spite of it
    small: SmallBatches = MappingProxyType({})  # steps that are joined to the step before

    def curve(self, number: int, values: Values, most: int = MOST) -> Curve:
        """Return the curve of a layer."""
        return curve_of(SeriesRows(self.steps, self.steps.astype(float), values[:, number]), self.small, most)


def shown_layers(
    number: int, arrays: Arrays, histograms: Histograms, small: SmallBatches, of: str = ""
) -> tuple[list[Plot], list[dict[str, Any]]]:
    """Return the plots of vectors with few layers, and the heat maps of the others.

    Args:
        number: of the run.
        arrays: of the run.
        histograms: of the run.
        small: batches that are joined to the batch before.
        of: an end of their names, such as " of run-1".
    """
    whole = (*_vectors(arrays, small), *_distributions(histograms))
    found = [layers._replace(name=layers.name + of) for layers in whole]
    many = [layers for layers in found if len(layers.labels) > LINES]
    columns = max(40, min(MOST_COLUMNS, CELLS // (sum(len(layers.labels) for layers in many) or 1)))
    plots = [_plot(number, layers) for layers in found if len(layers.labels) <= LINES]
    return plots, [_map(number, layers, columns) for layers in many]


def _vectors(arrays: Arrays, small: SmallBatches) -> Iterator[Layers]:
    vectors = {series: rows for series, rows in arrays.items() if len(rows[0].shape) == 1}
    names = {(series.phase, series.name) for series in vectors}
    for series, unsorted in vectors.items():
        base = series.name.removesuffix(LARGEST).removesuffix(COUNTS)
        if base != series.name and (series.phase, base) in names:
            continue
        rows = sorted(unsorted, key=lambda row: row.step)  # a hook may give steps in any order
        alike = [row for row in rows if row.shape == rows[-1].shape]  # a run that resumes may have other layers
        largest, counts = (vectors.get(series._replace(name=series.name + end), []) for end in (LARGEST, COUNTS))
        highest = {row.step: row.values for row in largest if row.shape == rows[-1].shape}
        values = np.array([row.values for row in alike], float)
        high = np.array([highest.get(row.step, row.values) for row in alike], float) if highest else None
        yield Layers(
            name_of(series),
            alike[-1].labels or [str(number) for number in range(values.shape[1])],
            np.array([row.step for row in alike]),
            values,
            values if highest else None,
            high,
            counts[-1].values if counts and counts[-1].shape == rows[-1].shape else (),
            bool(counts and counts[-1].shape == rows[-1].shape),
            small,
        )


def _distributions(histograms: Histograms) -> Iterator[Layers]:
    """Yield the medians of histograms with the 5 % and 95 % quantiles, grouped by the beginning of their names."""
    groups: dict[str, dict[str, Mapping[int, list[float]]]] = {}
    for series, rows in histograms.items():
        name, _, label = name_of(series).rpartition("/")
        groups.setdefault(name or label, {})[label] = {step: quantiles(edges, counts) for step, edges, counts in rows}
    for name, of in groups.items():
        steps = sorted({step for rows in of.values() for step in rows})
        nothing = [math.nan] * len(MIDDLE)
        found = np.array([[rows.get(step, nothing) for rows in of.values()] for step in steps])
        low, middle, high = np.moveaxis(found, -1, 0)
        if len(of) <= LINES:
            yield Layers(f"{name}: median, 5 % and 95 %", [*of], np.array(steps), middle, low, high)
        else:
            yield Layers(f"{name}: width of the middle 90 %", [*of], np.array(steps), high - low, is_size=True)


def quantiles(edges: Sequence[float], counts: Sequence[int]) -> list[float]:
    """Return the 5 %, 50 % and 95 % quantiles of a histogram.

    >>> quantiles([0.0, 1.0, 2.0], [10, 10])
    [0.1, 1.0, 1.9]
    """
    only = only_value(edges, counts)
    if only is not None:
        return [only] * len(MIDDLE)
    sums = [0, *accumulate(counts)]
    found = []
    for share in MIDDLE:
        # The values of a bin are taken as spread evenly over it.
        wanted = share * sums[-1]
        at = next((n for n, seen in enumerate(sums[1:]) if seen >= wanted and counts[n]), None)
        inside = None if at is None else (wanted - sums[at]) / counts[at]
        found.append(math.nan if at is None or inside is None else edges[at] + inside * (edges[at + 1] - edges[at]))
    return found


# ---- as the page gets them -------------------------------------------------------------------------------------------


def _plot(number: int, layers: Layers) -> Plot:
    plot = Plot(layers.name, True, section="layers")
    for n, label in enumerate(short_labels(layers.labels)):
        curve = layers.curve(n, layers.values)
        low = curve.low if layers.low is None else layers.curve(n, layers.low).low
        high = curve.high if layers.high is None else layers.curve(n, layers.high).high
        shown = DrawnCurve(number, label, "layer", "noisy", whole(curve.steps), rounded(curve.mean))
        if layers.low is not None or has_band(curve):
            shown.low, shown.high = rounded(low), rounded(high)
        shown.root = _root(layers.counts[n]) if layers.counts else None
        shown.depth = n / max(1, len(layers.labels) - 1)
        plot.curves.append(shown)
    return plot


def _map(number: int, layers: Layers, most: int) -> dict[str, Any]:
    curves = [layers.curve(n, layers.values, most) for n in range(len(layers.labels))]
    return {
        "section": "layers",
        "run": number,
        "name": layers.name,
        "labels": short_labels(layers.labels),
        "x": whole(curves[0].steps),
        "values": [rounded(curve.mean, 3) for curve in curves],
        "roots": [_root(count) for count in layers.counts],
        "is_size": layers.is_size,
    }


def _root(count: float) -> float:
    return float(f"{math.sqrt(count):.6g}") if 0 < count < math.inf else 1.0
