"""Curves that grow with a training and yet stay short; what they look like is decided in ``plots.py``."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, final

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
