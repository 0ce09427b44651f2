"""The curves of losses: over three axes, and those of the terms of a loss. ``loss_panels.py`` draws them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, final

from torch import Tensor

from train_manager.metrics.deferred import read_scalars
from train_manager.metrics.windows import GrowingCurve

Curves = dict[str, GrowingCurve]
"""The same values over three axes: by "epoch", by "batch" and by "example"."""


MetricCurves = Mapping[str, Mapping[str, GrowingCurve]]
"""For each metric its curves by epoch: of "training" and of each evaluation set."""


def new_curves() -> Curves:
    """Return curves without points."""
    return {"epoch": GrowingCurve(), "batch": GrowingCurve(), "example": GrowingCurve()}


def load_curve(state: Mapping[str, Any]) -> GrowingCurve:
    """Return a curve with the points of a state."""
    curve = GrowingCurve()
    curve.load_state_dict(state)
    return curve


def load_curves(state: Mapping[str, Mapping[str, Any]]) -> Curves:
    """Return curves with the points of a state."""
    return {by: load_curve(state[by]) for by in new_curves()}


@final
class PartCurves:
    """The curves of the named terms of a loss.

    >>> import torch
    >>> parts, of_epoch = PartCurves(), PartSums()
    >>> rows = [(1, 16, 16, {"sparsity": torch.tensor(.5)}), (2, 32, 16, {"sparsity": torch.tensor(.25)})]
    >>> parts.take(rows, of_epoch)
    >>> parts.end_epoch(1, of_epoch)
    >>> parts.curves["sparsity"]["batch"].y, parts.curves["sparsity"]["epoch"].y
    ([0.5, 0.25], [0.375])

    The point of an epoch is the mean over its examples.

    Attributes:
        curves: the curves, by the name of the term.
    """

    def __init__(self) -> None:
        self.curves: dict[str, Curves] = {}

    def take(self, rows: Sequence[tuple[int, float, float, Mapping[str, Tensor]]], of_epoch: PartSums) -> None:
        """Add the terms of batches, with one copy from the device for each term.

        Args:
            rows: of each batch its step, the examples seen so far, its examples and its terms.
            of_epoch: the sums of the epoch that the batches belong to.
        """
        for name in dict.fromkeys(name for *_, terms in rows for name in terms):
            curves = self.curves.setdefault(name, new_curves())
            having = [row for row in rows if name in row[-1]]
            values = read_scalars([terms[name] for *_, terms in having])
            for value, (step, seen, examples, _) in zip(values, having, strict=True):
                curves["batch"].append(step, value)
                curves["example"].append(seen, value)
                of_epoch.add(name, value, examples)

    def end_epoch(self, epoch: int, of_epoch: PartSums) -> None:
        """Add the point of a complete epoch."""
        for name, (total, weight) in of_epoch.items():
            if weight:
                self.curves[name]["epoch"].append(epoch, total / weight)

    def state_dict(self) -> dict[str, Any]:
        """Return the curves, as plain dicts, lists and numbers."""
        return {name: {by: curve.state_dict() for by, curve in of.items()} for name, of in self.curves.items()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from what ``state_dict`` returned."""
        self.curves = {name: load_curves(curves) for name, curves in state.items()}


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
