"""The losses of batches as curves that stay short, for a picture that is drawn while they are measured."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple, final

from train_manager.loop.batch_losses import BatchRow
from train_manager.metrics.deferred import numbers, read_scalars
from train_manager.metrics.history_rows import PART, metrics_of

MOST: Final = 160
"""Points of a curve: a panel of a notebook has twice as many pixels, and the text is sent once a second."""


class Point(NamedTuple):
    """A value of some examples, such as their mean loss, at a step."""

    step: float  # of several batches, the mean of their steps
    value: float
    examples: float  # number of the examples, by which points are weighted


@final
class LiveLosses:
    """The losses of batches, as a curve for each of several optimizers or one for all.

    >>> import torch
    >>> losses = LiveLosses()
    >>> losses.take([(torch.tensor(0.5), 1, 64, 0.0, "train", None), (torch.tensor(0.25), 2, 64, 0.0, "train", None)])
    >>> [(point.step, point.value) for point in losses.curves["training"].points]
    [(1, 0.5), (2, 0.25)]

    Attributes:
        curves: "training", or a curve by the name of each optimizer if a batch has only their losses.
    """

    def __init__(self) -> None:
        self.curves: dict[str, LiveCurve] = {}

    def take(self, rows: Sequence[BatchRow]) -> None:
        """Add batches, with one copy from the device for all of them."""
        sizes = numbers([examples for _, _, examples, *_ in rows])
        named = [{"training": loss} if loss is not None else parts or {} for loss, *_, parts in rows]
        values = iter(read_scalars([loss for losses in named for loss in losses.values()]))
        for (_, step, *_), examples, losses in zip(rows, sizes, named, strict=True):
            for name in losses:
                self.curves.setdefault(name, LiveCurve()).append(Point(step, next(values), examples))

    def state_dict(self) -> dict[str, Any]:
        """Return all points, as plain lists and numbers."""
        return {name: curve.state_dict() for name, curve in self.curves.items()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Resume from what ``state_dict`` returned."""
        self.curves = {name: LiveCurve() for name in state}
        for name, curve in self.curves.items():
            curve.load_state_dict(state[name])


@final
class LiveCurve:
    """A curve of means over examples; when it is full, each pair of neighbouring points is joined.

    A batch with less than half as many examples as the batch before, such as the last one of an epoch, is joined to
    it: the loss of three images is not a spike of the training.

    Args:
        most: the number of points at which it is full.
        points: the first ones.
    """

    def __init__(self, most: int = MOST, points: Iterable[Point] = ()) -> None:
        self._most = most
        self._width = 1  # batches per point; it doubles each time the curve is full
        self._full: list[Point] = []  # points of `_width` batches
        self._rest: list[Point] = []  # batches that do not fill a point yet
        for point in points:
            self.append(point)

    @property
    def points(self) -> list[Point]:
        """All points; the last one is the mean of the batches that do not fill a point yet."""
        return [*self._full, join_points(self._rest)] if self._rest else self._full

    def append(self, point: Point) -> None:
        """Add the loss of a batch."""
        if self._width == 1 and self._full and 2 * point.examples < self._full[-1].examples:
            self._full[-1] = join_points([self._full[-1], point])
            return
        self._rest.append(point)
        if len(self._rest) == self._width:
            self._full.append(join_points(self._rest))
            self._rest.clear()
        if len(self._full) == self._most:
            self._full = [join_points(self._full[first : first + 2]) for first in range(0, self._most, 2)]
            self._width *= 2

    def state_dict(self) -> dict[str, Any]:
        """Return all points, as plain lists and numbers."""
        return {"width": self._width, "full": [*map(list, self._full)], "rest": [*map(list, self._rest)]}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Resume from what ``state_dict`` returned."""
        self._width = state["width"]
        self._full, self._rest = ([Point(*point) for point in state[name]] for name in ("full", "rest"))


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


def join_points(points: Sequence[Point]) -> Point:
    """Return the mean over the examples, without losses that are not finite; nan, which draws a gap, if none is.

    >>> join_points([Point(1, 0.5, 60), Point(2, 3.5, 20)]), join_points([Point(1, math.inf, 8)]).value
    (Point(step=1.5, value=1.25, examples=80), nan)
    """
    step = sum(point.step for point in points) / len(points) if len(points) > 1 else points[0].step
    finite = [point for point in points if math.isfinite(point.value)]
    examples = sum(point.examples for point in finite)
    value = sum(point.value * point.examples for point in finite) / examples if examples else math.nan
    return Point(step, value, sum(point.examples for point in points))


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
