"""The losses of batches as curves that stay short, for a picture that is drawn while they are measured."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple, final

from train_manager.loop.batch_losses import BatchRow
from train_manager.metrics.deferred import numbers, read_scalars
from train_manager.metrics.history_rows import PART, metrics_of
from train_manager.metrics.windows import GrowingCurve, thin_out

MOST: Final = 160
"""Points of a curve: a panel of a notebook has twice as many pixels, and the text is sent once a second."""


class Point(NamedTuple):
    """A value of some examples, such as their mean loss, at a step."""

    step: float  # of several batches, the last one
    value: float
    examples: float  # number of the examples, by which points are weighted


@final
class LiveLosses:
    """The losses of batches, as a curve for each of several optimizers or one for all.

    >>> import torch
    >>> losses = LiveLosses()
    >>> losses.take([(torch.tensor(0.5), 1, 64, 0.0, "train", None), (torch.tensor(0.25), 2, 64, 0.0, "train", None)])
    >>> [(point.step, point.value) for point in points_of(losses.curves["training"])]
    [(1.0, 0.5), (2.0, 0.25)]

    Attributes:
        curves: "training", or a curve by the name of each optimizer if a batch has only their losses.
    """

    def __init__(self) -> None:
        self.curves: dict[str, GrowingCurve] = {}

    def take(self, rows: Sequence[BatchRow]) -> None:
        """Add batches, with one copy from the device for all of them."""
        sizes = numbers([examples for _, _, examples, *_ in rows])
        named = [{"training": loss} if loss is not None else parts or {} for loss, *_, parts in rows]
        values = iter(read_scalars([loss for losses in named for loss in losses.values()]))
        for (_, step, *_), examples, losses in zip(rows, sizes, named, strict=True):
            for name in losses:
                self.curves.setdefault(name, GrowingCurve()).append(step, next(values), examples)

    def state_dict(self) -> dict[str, Any]:
        """Return all points, as plain lists and numbers."""
        return {name: curve.state_dict() for name, curve in self.curves.items()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Resume from what ``state_dict`` returned."""
        self.curves = {name: GrowingCurve() for name in state}
        for name, curve in self.curves.items():
            curve.load_state_dict(state[name])


def points_of(curve: GrowingCurve, most: int = MOST) -> list[Point]:
    """Return the points of a curve, joined to at most so many.

    >>> curve = GrowingCurve()
    >>> for step, (loss, examples) in enumerate([(0.5, 64), (0.5, 64), (1.0, 3), (0.5, 64)], start=1):
    ...     curve.append(step, loss, examples)
    >>> [(point.step, round(point.value, 2)) for point in points_of(curve)]
    [(1.0, 0.5), (2.0, 0.5), (4.0, 0.52)]
    """
    windows = thin_out(curve.windows(), most)
    columns = (windows.steps, windows.means[:, 0], windows.weights)
    return [*map(Point, *(each.tolist() for each in columns))]


def shortened(points: Iterable[Point], most: int) -> list[Point]:
    """Return at most so many points, the means of neighbouring ones."""
    curve = GrowingCurve()
    for point in points:
        curve.append(*point)
    return points_of(curve, most)


def points_by_curve(rows: Iterable[Mapping[str, Any]], is_wanted: Callable[[str], bool]) -> dict[str, list[Point]]:
    """Return metrics of the history as curves: of the training, of each set, and of each of several losses of a set.

    >>> points_by_curve([{"set": "valid", "step": 3, "loss": 0.5}], lambda name: name == "loss")
    {'valid': [Point(step=3, value=0.5, examples=1)]}
    """
    found: dict[str, dict[int, Point]] = {}
    for row in rows:
        for name, value in metrics_of(row).items():
            if is_wanted(name):
                of = row.get("set", "training")
                curve = f"{of} {name.removeprefix(PART)}" if name.startswith(PART) else of
                # Of a set that was evaluated again at a step, the last value is drawn.
                found.setdefault(curve, {})[row["step"]] = Point(row["step"], value, 1)
    return {curve: list(points.values()) for curve, points in found.items()}


def smooth(points: Sequence[Point], windows: int = 50) -> list[Point]:
    """Return a running mean over about a 50th of the points, weighted by examples; the first value has no bias.

    >>> [round(point.value, 2) for point in smooth([Point(1, 1.0, 8), Point(2, 0.0, 8), Point(3, 0.0, 8)], windows=2)]
    [1.0, 0.34, 0.15]
    """
    decay = math.exp(-windows / max(1, len(points)))
    total = examples = 0.0
    found = []
    for point in points:
        if math.isfinite(point.value):
            # Dividing by the decayed number of examples removes the bias to zero, as in Adam.
            total = decay * total + point.value * point.examples
            examples = decay * examples + point.examples
        found.append(point._replace(value=total / examples if examples else math.nan))
    return found
