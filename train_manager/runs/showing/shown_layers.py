"""The numbers of layers, of all steps: as curves where there are few layers, and as heat maps."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate, takewhile
from typing import Any, Final, NamedTuple

from train_manager.reporting.histograms_svg import only_value
from train_manager.runs.record.metric_blobs import StoredArray
from train_manager.runs.record.metric_schema import Series
from train_manager.runs.record.metric_stretches import small_steps
from train_manager.runs.showing.shown_curves import Curve, Plot, short
from train_manager.runs.showing.stored_metrics import Histogram, StoredMetrics

LARGEST, COUNTS = "_largest", "_counts"
"""Ends of names of arrays that complete another array: the largest value of a window, the numbers counted by a norm."""
LINES: Final = 8  # up to so many layers are drawn as curves: a heat map of few rows shows little
CELLS: Final = 120_000  # cells of all heat maps of a run
MOST_COLUMNS: Final = 300
MIDDLE: Final = (0.05, 0.5, 0.95)  # the quantiles of a histogram that a curve shows


class Layers(NamedTuple):
    """Vectors of one series, with a value for each layer."""

    name: str  # of the series, with its phase
    labels: Sequence[str]  # names of the layers
    steps: Sequence[float]
    means: Sequence[Sequence[float]]  # for each step a value for each layer
    low: Sequence[Sequence[float]] = ()  # likewise the lowest values; empty if they are not known
    high: Sequence[Sequence[float]] = ()  # likewise the highest values
    counts: Sequence[float] = ()  # how many numbers the norm of each layer sums up; empty if the values are not norms
    is_size: bool = False  # whether 0 means an empty layer, so that a log scale is possible in spite of it


def shown_layers(number: int, metrics: StoredMetrics, of: str = "") -> tuple[list[Plot], list[dict[str, Any]]]:
    """Return the plots of vectors with few layers, and the heat maps of the others.

    Args:
        number: of the run.
        metrics: of the run.
        of: an end of their names, such as " of run-1".
    """
    whole = (*_vectors(metrics), *_distributions(metrics.histograms))
    found = [layers._replace(name=layers.name + of) for layers in whole]
    many = [layers for layers in found if len(layers.labels) > LINES]
    cells = sum(len(layers.labels) for layers in many) or 1
    columns = max(40, min(MOST_COLUMNS, CELLS // cells))
    return [_plot(number, one) for one in found if one not in many], [_map(number, one, columns) for one in many]


def _vectors(metrics: StoredMetrics) -> Iterator[Layers]:
    vectors = {series: rows for series, rows in metrics.arrays.items() if len(rows[0].shape) == 1}
    names = {(series.phase, series.name) for series in vectors}
    for series, unsorted in vectors.items():
        rows = sorted(unsorted, key=lambda row: row.step)  # a hook may give steps in any order
        base = series.name.removesuffix(LARGEST).removesuffix(COUNTS)
        if base != series.name and (series.phase, base) in names:
            continue
        largest = vectors.get(series._replace(name=series.name + LARGEST), [])
        counts = vectors.get(series._replace(name=series.name + COUNTS), [])
        alike = [row for row in rows if row.shape == rows[-1].shape]  # a run that resumes may have other layers
        kept = _without_small_batches(alike, metrics)
        highest = {row.step: row.values for row in largest if row.shape == rows[-1].shape}
        means = [row.values for row in kept]
        high = [highest.get(row.step, row.values) for row in kept] if highest else []
        of = counts[-1].values if counts and counts[-1].shape == rows[-1].shape else ()
        steps = [row.step for row in kept]
        yield Layers(_name(series), _labels(alike[-1]), steps, means, means if high else [], high, of, bool(of))


def _labels(row: StoredArray) -> list[str]:
    return [*row.labels] or [str(number) for number in range(len(row.values))]


def _without_small_batches(rows: Sequence[StoredArray], metrics: StoredMetrics) -> list[StoredArray]:
    """Return rows in which the small last batch of an epoch is joined to the batch before it, by its examples."""
    small, kept = small_steps(metrics.sizes), list[StoredArray]()
    for row in rows:
        if row.step in small and kept and kept[-1].step == row.step - 1:
            share, before = small[row.step] / (1 + small[row.step]), kept[-1]
            pairs = zip(before.values, row.values, strict=True)
            # nan differs from itself: of two values, the one that is a number counts.
            joined = [a if b != b else b if a != a else a + share * (b - a) for a, b in pairs]
            kept[-1] = before._replace(values=type(row.values)("f", joined))
        else:
            kept.append(row)
    return kept


def _distributions(histograms: Mapping[Series, Sequence[Histogram]]) -> Iterator[Layers]:
    """Yield the medians of histograms with the 5 % and 95 % quantiles, grouped by the beginning of their names."""
    groups: dict[str, dict[str, Mapping[int, list[float]]]] = {}
    for series, rows in histograms.items():
        name, _, label = _name(series).rpartition("/")
        groups.setdefault(name or label, {})[label] = {step: quantiles(edges, counts) for step, edges, counts in rows}
    for name, of in groups.items():
        steps = sorted({step for rows in of.values() for step in rows})
        nothing = [math.nan] * len(MIDDLE)
        low, middle, high = ([[rows.get(step, nothing)[n] for rows in of.values()] for step in steps] for n in range(3))
        if len(of) <= LINES:
            yield Layers(f"{name}: median, 5 % and 95 %", [*of], steps, middle, low, high)
        else:
            width = [[b - a for a, b in zip(*ends, strict=True)] for ends in zip(low, high, strict=True)]
            yield Layers(f"{name}: width of the middle 90 %", [*of], steps, width, is_size=True)


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
        mean, low, high = ([*short(row[n] for row in rows)] for rows in (layers.means, layers.low, layers.high))
        curve = Curve(number, label, "layer", "noisy", layers.steps, mean, low, high)
        curve.root = _root(layers.counts[n]) if layers.counts else None
        curve.depth = n / max(1, len(layers.labels) - 1)
        plot.curves.append(curve)
    return plot


def _map(number: int, layers: Layers, most: int) -> dict[str, Any]:
    width = -(-len(layers.steps) // most)
    parts = [slice(start, start + width) for start in range(0, len(layers.steps), width or 1)]
    values = [[_mean([row[n] for row in layers.means[part]]) for part in parts] for n in range(len(layers.labels))]
    return {
        "section": "layers",
        "run": number,
        "name": layers.name,
        "labels": short_labels(layers.labels),
        "x": [layers.steps[part][-1] for part in parts],
        "values": [short(row, 3) for row in values],
        "roots": [_root(count) for count in layers.counts],
        "is_size": layers.is_size,
    }


def _root(count: float) -> float:
    return float(f"{math.sqrt(count):.6g}") if 0 < count < math.inf else 1.0


def _mean(values: Sequence[float]) -> float:
    known = [value for value in values if value == value]
    return sum(known) / len(known) if known else math.nan


def short_labels(labels: Sequence[str]) -> list[str]:
    """Return names without the modules that all of them begin with.

    >>> short_labels(["model.blocks.0.fc Linear", "model.blocks.1.fc Linear"])
    ['0.fc Linear', '1.fc Linear']
    """
    same = _common([label.split(".") for label in labels])
    return [label.split(".", same)[-1] for label in labels]


def _common(parts: Sequence[Sequence[str]]) -> int:
    """Return the number of modules with which all paths begin, not counting the last one of any path."""
    several = zip(*(of_one[:-1] for of_one in parts), strict=False) if len(parts) > 1 else ()
    return sum(1 for _ in takewhile(lambda column: len({*column}) == 1, several))


def _name(series: Series) -> str:
    return f"{series.phase}/{series.name}" if series.phase else series.name
