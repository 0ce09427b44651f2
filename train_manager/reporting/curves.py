"""Curves that grow with a training and stay short, whatever its length. ``svg.py`` draws them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, final

from torch import Tensor

from train_manager.metrics.deferred import DeferredScalars, numbers

MOST_POINTS = 2000  # points of a curve: more than a panel has pixels


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
        self._rest: list[tuple[float, float]] = []  # appended points that do not fill a point of the curve yet

    def append(self, x: float, y: float) -> None:
        """Add a point at the end."""
        self._rest.append((x, y))
        if len(self._rest) == self._width:
            self._points.append(mean_point(self._rest))
            self._rest.clear()
        if len(self._points) == self._most:
            # The curve is full: from now on each of its points stands for twice as many appended points.
            self._points = halve(self._points)
            self._width *= 2

    @property
    def x(self) -> list[float]:
        """The x of every point."""
        return [x for x, _ in self._all_points()]

    @property
    def y(self) -> list[float]:
        """The y of every point."""
        return [y for _, y in self._all_points()]

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

    def _all_points(self) -> list[tuple[float, float]]:
        return [*self._points, mean_point(self._rest)] if self._rest else self._points


Curves = dict[str, Curve]
"""The same values over three axes: by "epoch", by "batch" and by "example"."""


MetricCurves = Mapping[str, Mapping[str, Curve]]
"""For each metric its curves by epoch: of "training" and of each evaluation set."""


def new_curves() -> Curves:
    """Return curves without points."""
    return {"epoch": Curve(), "batch": Curve(), "example": Curve()}


def load_curve(state: Mapping[str, Any]) -> Curve:
    """Return a curve with the points of a state."""
    curve = Curve()
    curve.load_state_dict(state)
    return curve


def load_curves(state: Mapping[str, Mapping[str, Any]]) -> Curves:
    """Return curves with the points of a state."""
    return {by: load_curve(state[by]) for by in new_curves()}


def halve(points: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """Return the means of pairs of points; an odd last point stays.

    >>> halve([(1, .2), (2, .4), (3, .9)])
    [(1.5, 0.30000000000000004), (3.0, 0.9)]
    """
    return [mean_point(points[i : i + 2]) for i in range(0, len(points), 2)]


def mean_point(points: Sequence[tuple[float, float]]) -> tuple[float, float]:
    """Return the mean of the finite points; nan, which draws a gap, if no point is finite.

    >>> mean_point([(1, .5), (2, math.nan), (3, 1.5)]), mean_point([(1, math.inf)])
    ((2.0, 1.0), (1.0, nan))
    """
    heights = [y for _, y in points if math.isfinite(y)]
    return sum(x for x, _ in points) / len(points), sum(heights) / len(heights) if heights else math.nan


@final
class PartCurves:
    """The curves of the named terms of a loss; their values are deferred scalars.

    >>> import torch
    >>> parts = PartCurves()
    >>> parts.append({"sparsity": torch.tensor(.5)}, step=1, examples=16)
    >>> parts.append({"sparsity": torch.tensor(.25)}, step=2, examples=16)
    >>> of_epoch = PartSums()
    >>> parts.take(of_epoch)
    >>> parts.end_epoch(1, of_epoch)
    >>> parts.curves["sparsity"]["batch"].y, parts.curves["sparsity"]["epoch"].y
    ([0.5, 0.25], [0.375])

    The point of an epoch is the mean over its examples.

    Attributes:
        curves: the curves, by the name of the term.
    """

    def __init__(self) -> None:
        self.curves: dict[str, Curves] = {}
        # Values that are still on the device. For each: its step, the examples seen so far, and those of the batch.
        self._deferred: dict[str, tuple[DeferredScalars, list[tuple[int, Any, Any]]]] = {}
        self._examples: Any = 0  # a tensor if the batch sizes are tensors

    def append(self, losses: Mapping[str, Tensor], step: int, examples: Any) -> None:
        """Add the terms of one step, whose batch has ``examples``."""
        self._examples = self._examples + examples
        for name, value in losses.items():
            scalars, steps = self._deferred.setdefault(name, (DeferredScalars(), []))
            scalars.keep(value)
            steps.append((step, self._examples, examples))

    def take(self, of_epoch: PartSums) -> None:
        """Move the deferred values into the curves, with one copy from the device for each term.

        Args:
            of_epoch: the sums of the epoch that the values belong to.
        """
        for name, (scalars, steps) in self._deferred.items():
            curves = self.curves.setdefault(name, new_curves())
            for value, (step, seen, examples) in zip(scalars.take(), steps, strict=True):
                curves["batch"].append(step, value)
                curves["example"].append(float(seen), value)
                of_epoch.add(name, value, float(examples))
            steps.clear()

    def end_epoch(self, epoch: int, of_epoch: PartSums) -> None:
        """Add the point of a complete epoch."""
        for name, (total, weight) in of_epoch.items():
            if weight:
                self.curves[name]["epoch"].append(epoch, total / weight)

    def state_dict(self) -> dict[str, Any]:
        """Return the curves, as plain dicts, lists and numbers."""
        curves = {name: {by: curve.state_dict() for by, curve in of.items()} for name, of in self.curves.items()}
        return {"curves": curves, "examples": numbers([self._examples])[0]}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from what ``state_dict`` returned."""
        self._deferred = {}
        self.curves = {name: load_curves(curves) for name, curves in state["curves"].items()}
        self._examples = state["examples"]


@final
class PartSums(dict[str, tuple[float, float]]):
    """The terms of a loss over an epoch: the weighted sum of the values of each, and the sum of the weights."""

    def add(self, name: str, value: float, weight: float) -> None:
        """Add a value of a term."""
        total, weights = self.get(name, (0.0, 0.0))
        self[name] = total + value * weight, weights + weight

    def state_dict(self) -> dict[str, list[float]]:
        """Return the sums, as plain lists."""
        return {name: list(sums) for name, sums in self.items()}

    def load_state_dict(self, state: Mapping[str, Sequence[float]]) -> None:
        """Restore what ``state_dict`` returned."""
        self.clear()
        self.update({name: (total, weight) for name, (total, weight) in state.items()})
