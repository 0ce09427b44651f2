"""Curves that grow with a training and yet stay short; what they look like is decided in ``loss_figure.py``."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, final

from torch import Tensor

from train_manager.metrics.deferred import DeferredScalars

MOST_POINTS = 2000  # per curve: more than a panel has pixels


@final
class Curve:
    """Points of a curve that grows and yet stays short: each is the mean of some neighbours, of more as it grows.

    >>> curve = Curve(most=4)
    >>> for x in range(1, 7):
    ...     curve.append(x, 2 * x)
    >>> curve.x, curve.y
    ([1.5, 3.5, 5.5], [3.0, 7.0, 11.0])

    Args:
        most: never more points than this.
    """

    def __init__(self, most: int = MOST_POINTS) -> None:
        self._most = most
        self._points: list[tuple[float, float]] = []
        self._width = 1  # how many that were appended make one point
        self._rest: list[tuple[float, float]] = []  # fewer than that

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
        """Where the points are."""
        return [x for x, _ in self._shown()]

    @property
    def y(self) -> list[float]:
        """How high they are."""
        return [y for _, y in self._shown()]

    def state_dict(self) -> dict[str, Any]:
        """Plain lists and numbers."""
        return {
            "points": [list(point) for point in self._points],
            "width": self._width,
            "rest": [list(point) for point in self._rest],
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take over what ``state_dict`` gave."""
        self._points = [(x, y) for x, y in state["points"]]
        self._width = state["width"]
        self._rest = [(x, y) for x, y in state["rest"]]

    def _shown(self) -> list[tuple[float, float]]:
        return [*self._points, mean_point(self._rest)] if self._rest else self._points


Curves = dict[str, Curve]
"""One curve over three axes: by "epoch", by "batch" and by "example"."""


def new_curves() -> Curves:
    """Curves without a point."""
    return {"epoch": Curve(), "batch": Curve(), "example": Curve()}


def loaded_curves(state: Mapping[str, Mapping[str, Any]]) -> Curves:
    """Curves with the points of a state."""
    curves = new_curves()
    for by, curve in curves.items():
        curve.load_state_dict(state[by])
    return curves


def halved(points: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """Half as many points: the means of pairs; an odd last one stays as it is.

    >>> halved([(1, .2), (2, .4), (3, .9)])
    [(1.5, 0.30000000000000004), (3.0, 0.9)]
    """
    return [mean_point(points[i : i + 2]) for i in range(0, len(points), 2)]


def mean_point(points: Sequence[tuple[float, float]]) -> tuple[float, float]:
    """The middle of some points. One that is not finite is left out, unless all are: then there is a gap.

    >>> mean_point([(1, .5), (2, math.nan), (3, 1.5)]), mean_point([(1, math.inf)])
    ((2.0, 1.0), (1.0, nan))
    """
    heights = [y for _, y in points if math.isfinite(y)]
    return sum(x for x, _ in points) / len(points), sum(heights) / len(heights) if heights else math.nan


@final
class PartCurves:
    """The curves of each name; the values are held on their device and read in one go.

    >>> import torch
    >>> parts = PartCurves()
    >>> parts.append({"sparsity": torch.tensor(.5)}, step=1, examples=16)
    >>> parts.append({"sparsity": torch.tensor(.25)}, step=2, examples=16)
    >>> parts.end_epoch(1)
    >>> parts.curves["sparsity"]["batch"].y, parts.curves["sparsity"]["epoch"].y
    ([0.5, 0.25], [0.375])

    An epoch's point is the mean over its examples.

    Attributes:
        curves: by the part's name.
    """

    def __init__(self) -> None:
        self.curves: dict[str, Curves] = {}
        # Values that are not in the curves yet; of each the step, the examples seen by then, and those of the batch.
        self._held: dict[str, tuple[DeferredScalars, list[tuple[int, Any, Any]]]] = {}
        self._of_epoch: dict[str, list[float]] = {}  # sum and weight
        self._examples: Any = 0  # a tensor where the batch sizes are some

    def append(self, losses: Mapping[str, Tensor], step: int, examples: Any) -> None:
        """Take in the parts of one step, and how many examples its batch has."""
        self._examples = self._examples + examples
        for name, value in losses.items():
            held, steps = self._held.setdefault(name, (DeferredScalars(), []))
            is_full = held.append(value)
            steps.append((step, self._examples, examples))
            if is_full:
                self.take()

    def take(self) -> None:
        """Move what is held into the curves."""
        for name, (held, steps) in self._held.items():
            curves = self.curves.setdefault(name, new_curves())
            epoch = self._of_epoch.setdefault(name, [0.0, 0.0])
            for value, (step, seen, examples) in zip(held.take(), steps, strict=True):
                curves["batch"].append(step, value)
                curves["example"].append(float(seen), value)
                epoch[0] += value * float(examples)
                epoch[1] += float(examples)
            steps.clear()

    def begin_epoch(self) -> None:
        """The next point by epoch is a mean from here on."""
        self.take()
        self._of_epoch = {}

    def end_epoch(self, epoch: int) -> None:
        """An epoch is complete."""
        self.take()
        for name, (total, weight) in self._of_epoch.items():
            if weight:
                self.curves[name]["epoch"].append(epoch, total / weight)

    def state_dict(self) -> dict[str, Any]:
        """Plain dicts, lists and numbers."""
        self.take()
        curves = {name: {by: curve.state_dict() for by, curve in of.items()} for name, of in self.curves.items()}
        of_epoch = {name: list(sums) for name, sums in self._of_epoch.items()}
        return {"curves": curves, "of_epoch": of_epoch, "examples": float(self._examples)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take over what ``state_dict`` gave."""
        self._held = {}
        self.curves = {name: loaded_curves(curves) for name, curves in state["curves"].items()}
        self._of_epoch = {name: list(sums) for name, sums in state["of_epoch"].items()}
        self._examples = state["examples"]
