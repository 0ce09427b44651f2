"""Curves that grow with a training and stay short, whatever its length. ``loss_figure.py`` draws them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, final

from torch import Tensor

from train_manager.metrics.deferred import DeferredScalars, numbers

MOST_POINTS = 2000  # per curve: more than a panel has pixels


@final
class Curve:
    """A curve that stays short: when it is full, each pair of neighbouring points becomes their mean.

    >>> curve = Curve(most=4)
    >>> for x in range(1, 7):
    ...     curve.append(x, 2 * x)
    >>> curve.x, curve.y
    ([1.5, 3.5, 5.5], [3.0, 7.0, 11.0])

    Args:
        most: the maximal number of points.
    """

    def __init__(self, most: int = MOST_POINTS) -> None:
        self._most = most
        self._points: list[tuple[float, float]] = []
        self._width = 1  # appended points per point of the curve
        self._rest: list[tuple[float, float]] = []  # appended points that are fewer than the width

    def append(self, x: float, y: float) -> None:
        """Add a point at the end."""
        self._rest.append((x, y))
        if len(self._rest) == self._width:
            self._points.append(mean_point(self._rest))
            self._rest.clear()
        if len(self._points) == self._most:
            self._points = halved(self._points)
            self._width *= 2

    @property
    def x(self) -> list[float]:
        """The x of every point."""
        return [x for x, _ in self._shown()]

    @property
    def y(self) -> list[float]:
        """The y of every point."""
        return [y for _, y in self._shown()]

    def state_dict(self) -> dict[str, Any]:
        """Return all points, as plain lists and numbers."""
        return {
            "points": [list(point) for point in self._points],
            "width": self._width,
            "rest": [list(point) for point in self._rest],
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from what ``state_dict`` returned."""
        self._points = [(x, y) for x, y in state["points"]]
        self._width = state["width"]
        self._rest = [(x, y) for x, y in state["rest"]]

    def _shown(self) -> list[tuple[float, float]]:
        return [*self._points, mean_point(self._rest)] if self._rest else self._points


Curves = dict[str, Curve]
"""The same values over three axes: by "epoch", by "batch" and by "example"."""


MetricCurves = Mapping[str, Mapping[str, Curve]]
"""For each metric its curves by epoch: of "training" and of each evaluation set."""


def new_curves() -> Curves:
    """Return curves without points."""
    return {"epoch": Curve(), "batch": Curve(), "example": Curve()}


def loaded_curve(state: Mapping[str, Any]) -> Curve:
    """Return a curve with the points of a state."""
    curve = Curve()
    curve.load_state_dict(state)
    return curve


def loaded_curves(state: Mapping[str, Mapping[str, Any]]) -> Curves:
    """Return curves with the points of a state."""
    return {by: loaded_curve(state[by]) for by in new_curves()}


def halved(points: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """Return the means of pairs of points; an odd last point stays.

    >>> halved([(1, .2), (2, .4), (3, .9)])
    [(1.5, 0.30000000000000004), (3.0, 0.9)]
    """
    return [mean_point(points[i : i + 2]) for i in range(0, len(points), 2)]


def mean_point(points: Sequence[tuple[float, float]]) -> tuple[float, float]:
    """Return the mean of some points, without those that are not finite; nan, which draws a gap, if none is finite.

    >>> mean_point([(1, .5), (2, math.nan), (3, 1.5)]), mean_point([(1, math.inf)])
    ((2.0, 1.0), (1.0, nan))
    """
    heights = [y for _, y in points if math.isfinite(y)]
    return sum(x for x, _ in points) / len(points), sum(heights) / len(heights) if heights else math.nan


@final
class PartCurves:
    """The curves of the named parts of a loss; their values are deferred scalars.

    >>> import torch
    >>> parts = PartCurves()
    >>> parts.append({"sparsity": torch.tensor(.5)}, step=1, examples=16)
    >>> parts.append({"sparsity": torch.tensor(.25)}, step=2, examples=16)
    >>> parts.end_epoch(1)
    >>> parts.curves["sparsity"]["batch"].y, parts.curves["sparsity"]["epoch"].y
    ([0.5, 0.25], [0.375])

    The point of an epoch is the mean over its examples.

    Attributes:
        curves: the curves, by the name of the part.
    """

    def __init__(self) -> None:
        self.curves: dict[str, Curves] = {}
        # Values that are not in the curves yet; for each the step, the examples seen so far, and those of the batch.
        self._deferred: dict[str, tuple[DeferredScalars, list[tuple[int, Any, Any]]]] = {}
        self._of_epoch: dict[str, list[float]] = {}  # by part: the weighted sum of its values, and the sum of weights
        self._examples: Any = 0  # a tensor if the batch sizes are tensors

    def append(self, losses: Mapping[str, Tensor], step: int, examples: Any) -> None:
        """Add the parts of one step, whose batch has ``examples``."""
        self._examples = self._examples + examples
        for name, value in losses.items():
            scalars, steps = self._deferred.setdefault(name, (DeferredScalars(), []))
            is_full = scalars.append(value)
            steps.append((step, self._examples, examples))
            if is_full:
                self.take()

    def take(self) -> None:
        """Move the deferred values into the curves: one copy from the device for each part."""
        for name, (scalars, steps) in self._deferred.items():
            curves = self.curves.setdefault(name, new_curves())
            epoch = self._of_epoch.setdefault(name, [0.0, 0.0])
            for value, (step, seen, examples) in zip(scalars.take(), steps, strict=True):
                curves["batch"].append(step, value)
                curves["example"].append(float(seen), value)
                epoch[0] += value * float(examples)
                epoch[1] += float(examples)
            steps.clear()

    def begin_epoch(self) -> None:
        """Begin the mean of the next epoch."""
        self.take()
        self._of_epoch = {}

    def end_epoch(self, epoch: int) -> None:
        """Add the point of a complete epoch."""
        self.take()
        for name, (total, weight) in self._of_epoch.items():
            if weight:
                self.curves[name]["epoch"].append(epoch, total / weight)

    def state_dict(self) -> dict[str, Any]:
        """Return the curves and the sums of the open epoch, as plain dicts, lists and numbers."""
        self.take()
        curves = {name: {by: curve.state_dict() for by, curve in of.items()} for name, of in self.curves.items()}
        of_epoch = {name: list(sums) for name, sums in self._of_epoch.items()}
        return {"curves": curves, "of_epoch": of_epoch, "examples": numbers([self._examples])[0]}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from what ``state_dict`` returned."""
        self._deferred = {}
        self.curves = {name: loaded_curves(curves) for name, curves in state["curves"].items()}
        self._of_epoch = {name: list(sums) for name, sums in state["of_epoch"].items()}
        self._examples = state["examples"]
