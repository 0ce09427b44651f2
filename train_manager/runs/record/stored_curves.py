"""The curves that ``LossCurves`` draws, made from what ``MetricStore`` has written."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from train_manager.metrics.history_rows import is_loss, metrics_of
from train_manager.reporting.curves import Curve, Curves, new_curves
from train_manager.reporting.loss_figure import part_label
from train_manager.runs.store.reader import MetricReader
from train_manager.runs.store.schema import BATCHES, RANKS, Series

Row = Mapping[str, Any]


class StoredCurves(NamedTuple):
    """What a figure of loss curves shows."""

    training: Curves
    eval_sets: dict[str, Curves]
    metrics: dict[str, dict[str, Curve]]
    is_of_rank: bool  # the losses of batches are of the rows of rank 0


def stored_curves(reader: MetricReader) -> StoredCurves:
    """Return the curves of a training."""
    history = reader.history()
    epochs = [row for row in history["epochs"] if "partial" not in row]
    seen = examples_seen(reader)
    is_of_rank = bool(points_of(reader, RANKS))
    training, parts = batch_curves(reader, seen, [row["step"] for row in epochs], is_of_rank)
    for row in epochs:
        if "loss" in row:
            training["epoch"].append(row["epoch"], row["loss"])
    # A standalone evaluation, outside of a training, has no place on the axis of epochs.
    standing = [row for row in history["evaluations"] if "standalone" not in row]
    ends = {(0, 0), *((row["epoch"], row["step"]) for row in epochs)}
    eval_sets: dict[str, Curves] = {}
    for row in standing:
        if "loss" in row:
            add_evaluation(eval_sets.setdefault(row["set"], new_curves()), row, seen, ends)
    return StoredCurves(training, {**eval_sets, **parts}, metric_curves(epochs, standing, ends), is_of_rank)


def examples_seen(reader: MetricReader) -> dict[int, float]:
    """Return how many examples had been trained on after each step."""
    losses = (of for series, of in reader.scalars(stage=BATCHES).items() if is_loss(series.name))
    last = max((step for of in losses for step in of.steps), default=0)
    changes = dict(points_of(reader, "batch_size"))
    seen, size, total = {0: 0.0}, 0.0, 0.0
    for step in range(1, last + 1):  # also steps without a loss, whose examples count all the same
        size = changes.get(step, size)
        total += size
        seen[step] = total
    return seen


def batch_curves(
    reader: MetricReader, seen: Mapping[int, float], ends: Sequence[int], is_of_rank: bool
) -> tuple[Curves, dict[str, Curves]]:
    """Return the curves of the loss, without its points by epoch, and the curves of its terms."""
    training = new_curves()
    for step, value in points_of(reader, "loss"):
        training["batch"].append(step, value)
        training["example"].append(seen[step], value)
    names = dict.fromkeys(series.name for series in reader.series() if series.name.startswith("losses/"))
    parts: dict[str, Curves] = {}
    for name in names:
        curves = parts[part_label(name.removeprefix("losses/"), is_of_rank)] = new_curves()
        points = points_of(reader, name)
        for step, value in points:
            curves["batch"].append(step, value)
            curves["example"].append(seen.get(step, step), value)
        for epoch, mean in means_by_epoch(points, seen, ends):
            curves["epoch"].append(epoch, mean)
    return training, parts


def points_of(reader: MetricReader, name: str) -> list[tuple[int, float]]:
    """Return steps and values of a name, of all phases and datasources."""
    found: Mapping[Series, Any] = reader.scalars(name, BATCHES)
    return sorted((point for of in found.values() for point in zip(*of[:2], strict=True)), key=lambda point: point[0])


def means_by_epoch(
    points: Sequence[tuple[int, float]], seen: Mapping[int, float], ends: Sequence[int]
) -> Iterator[tuple[int, float]]:
    """Yield each whole epoch with the mean over its examples."""
    start = 0
    for epoch, end in enumerate(ends, start=1):
        weighted = [(value, seen[step] - seen[step - 1]) for step, value in points if start < step <= end]
        total = sum(weight for _, weight in weighted)
        if total:
            yield epoch, sum(value * weight for value, weight in weighted) / total
        start = end


def add_evaluation(curves: Curves, row: Row, seen: Mapping[int, float], ends: set[tuple[int, int]]) -> None:
    """Add the point of an evaluation; one in the middle of an epoch has none by epoch."""
    if (row["epoch"], row["step"]) in ends:
        curves["epoch"].append(row["epoch"], row["loss"])
    curves["batch"].append(row["step"], row["loss"])
    curves["example"].append(seen.get(row["step"], 0.0), row["loss"])


def metric_curves(
    epochs: Sequence[Row], evaluations: Sequence[Row], ends: set[tuple[int, int]]
) -> dict[str, dict[str, Curve]]:
    """Return for each metric its curves by epoch."""
    found: dict[str, dict[str, Curve]] = {}
    at_ends = [row for row in evaluations if (row["epoch"], row["step"]) in ends]
    for row in sorted([*epochs, *at_ends], key=lambda row: row["step"]):
        for name, value in metrics_of(row).items():
            if not is_loss(name) and isinstance(value, int | float):
                found.setdefault(name, {}).setdefault(row.get("set", "training"), Curve()).append(row["epoch"], value)
    return found
