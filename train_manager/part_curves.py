"""Curves of the parts of a loss: what models add with ``add_loss``, and the heads of ``WeightedLosses``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, final

from torch import Tensor

from train_manager.curve import Curves, loaded_curves, new_curves
from train_manager.held import HeldScalars


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
        self._held: dict[str, tuple[HeldScalars, list[tuple[int, Any, Any]]]] = {}
        self._of_epoch: dict[str, list[float]] = {}  # sum and weight
        self._examples: Any = 0  # a tensor where the batch sizes are some

    def append(self, losses: Mapping[str, Tensor], step: int, examples: Any) -> None:
        """Take in the parts of one step, and how many examples its batch has."""
        self._examples = self._examples + examples
        for name, value in losses.items():
            held, steps = self._held.setdefault(name, (HeldScalars(), []))
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
