"""The curves that ``LossCurves`` draws, of a run that is gone: from what ``MetricStore`` has written."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple, final

import numpy as np
from numpy.typing import NDArray

from train_manager.metrics.history_rows import PART, is_loss, metrics_of
from train_manager.metrics.windows import GrowingCurve
from train_manager.reporting.curves import Curves
from train_manager.reporting.loss_panels import part_label
from train_manager.runs.store.curves import curves_of, example_knots
from train_manager.runs.store.reader import MetricReader
from train_manager.runs.store.schema import BATCH_SIZE, BATCHES, RANKS

Row = Mapping[str, Any]
Points = Sequence[tuple[float, float]]


class LossCurves(NamedTuple):
    """What a figure of loss curves shows."""

    training: Curves
    eval_sets: dict[str, Curves]
    metrics: dict[str, dict[str, GrowingCurve]]
    is_of_rank: bool  # the losses of batches are of the rows of rank 0


def loss_curves(reader: MetricReader) -> LossCurves:
    """Return the curves of a training."""
    stored = _StoredLosses(reader)
    sets = dict.fromkeys(row["set"] for row in stored.standing if "loss" in row)
    parts = {
        part_label(name.removeprefix(PART), stored.is_of_rank): stored.of_batches(name)
        for name in stored.batches
        if name.startswith(PART)
    }
    eval_sets = {name: stored.of_set(name) for name in sets} | parts
    metrics = _metrics([*stored.epochs, *stored.at_ends])
    return LossCurves(stored.of_batches("loss"), eval_sets, metrics, stored.is_of_rank)


@final
class _StoredLosses:
    """The losses of a training: of its batches by name, and the rows of its history."""

    def __init__(self, reader: MetricReader) -> None:
        history = reader.history()
        self.epochs = [row for row in history["epochs"] if "partial" not in row]
        # A standalone evaluation, outside of a training, has no place on the axis of epochs.
        self.standing = [row for row in history["evaluations"] if "standalone" not in row]
        ends = {(0, 0), *((row["epoch"], row["step"]) for row in self.epochs)}
        self.at_ends = [row for row in self.standing if (row["epoch"], row["step"]) in ends]
        self.batches = _points_of_batches(reader)
        self.is_of_rank = RANKS in self.batches
        steps = [step for points in self.batches.values() for step, _ in points]
        last = max([0.0, *steps, *(row["step"] for row in self.standing)])
        self._seen = np.array(example_knots(self.batches.get(BATCH_SIZE, []), last) or [(0.0, 0.0)])

    def of_batches(self, name: str) -> Curves:
        """Return the curves of a loss of the training."""
        points = self.batches.get(name, [])
        # The history has the mean of a loss, and of the losses of several optimizers; not of the terms of a loss.
        by_epoch = [(row["epoch"], row[name]) for row in self.epochs if name in row]
        return self._curves(points, by_epoch or list(self._means(points)))

    def of_set(self, name: str) -> Curves:
        """Return the curves of the loss of an evaluation set."""
        points, by_epoch = (
            [(row[place], row["loss"]) for row in rows if row["set"] == name and "loss" in row]
            for place, rows in (("step", self.standing), ("epoch", self.at_ends))
        )
        return self._curves(points, by_epoch)

    def _curves(self, points: Points, by_epoch: Points) -> Curves:
        seen = self._examples([step for step, _ in points]).tolist()
        by_example = [(examples, value) for examples, (_, value) in zip(seen, points, strict=True)]
        return {"epoch": _curve(by_epoch), "batch": _curve(points), "example": _curve(by_example)}

    def _means(self, points: Points) -> Iterator[tuple[float, float]]:
        """Yield each whole epoch with the mean of its points, by the examples since the point before."""
        steps, values = np.array(points).reshape(-1, 2).T
        weights, start = np.diff(self._examples(steps), prepend=0.0), 0
        for row in self.epochs:
            within = (start < steps) & (steps <= row["step"])
            if weights[within].any():
                yield row["epoch"], float(np.average(values[within], weights=weights[within]))
            start = row["step"]

    def _examples(self, steps: Any) -> NDArray[np.float64]:
        """Return how many examples had been trained on after steps."""
        found: NDArray[np.float64] = np.interp(steps, *self._seen.T)
        return found


def _curve(points: Points) -> GrowingCurve:
    curve = GrowingCurve()
    for x, y in points:
        curve.append(x, y)
    return curve


def _points_of_batches(reader: MetricReader) -> dict[str, list[tuple[float, float]]]:
    """Return steps and values of each name, of all phases and datasources."""
    found: dict[str, list[tuple[float, float]]] = {}
    for series, curve in curves_of(reader, stage=BATCHES).items():
        found.setdefault(series.name, []).extend(zip(curve.steps.tolist(), curve.mean.tolist(), strict=True))
    return {name: sorted(points, key=lambda point: point[0]) for name, points in found.items()}


def _metrics(rows: Sequence[Row]) -> dict[str, dict[str, GrowingCurve]]:
    """Return for each metric its curves by epoch."""
    found: dict[str, dict[str, GrowingCurve]] = {}
    for row in sorted(rows, key=lambda row: row["step"]):
        for name, value in metrics_of(row).items():
            if not is_loss(name) and isinstance(value, int | float):
                found.setdefault(name, {}).setdefault(row.get("set", "training"), GrowingCurve()).append(
                    row["epoch"], value
                )
    return found
