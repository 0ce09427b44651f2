"""A clean model made into one that leaks: it rolls its input over the batch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor, nn

from tests.checks.cases import Case
from tests.checks.examples import called, mapped, size_of


class Rolled(nn.Module):
    """Gives each example the input of the one before it."""

    def __init__(self, inside: nn.Module, case: Case) -> None:
        super().__init__()
        self.inside = inside
        self.case = case

    def forward(self, *batch: Any, **named: Any) -> Any:
        given = named or (batch[0] if len(batch) == 1 and isinstance(batch[0], Tensor) else batch)
        return called(self.case, self.inside, self.roll(given))

    def roll(self, batch: Any) -> Any:
        size = size_of(self.case, batch)
        axis = self.case.options.get("batch_axis", 0)
        if isinstance(batch, tuple) and isinstance(batch[0], list):
            return (batch[0][-1:] + batch[0][:-1], *batch[1:])

        def of_leaf(leaf: Tensor) -> Tensor:
            along = axis if leaf.ndim > axis and leaf.shape[axis] == size else 0
            return leaf.roll(1, along)

        if not isinstance(batch, Mapping):
            return mapped(batch, of_leaf)
        shared = self.case.options.get("shared", ())
        return {key: item if key in shared else mapped(item, of_leaf) for key, item in batch.items()}


def rolled(case: Case) -> Case:
    """Return the clean case with its input rolled; the model itself must be named, and what folds is inside of it."""
    options = {key: value for key, value in case.options.items() if key != "call"}
    return case._replace(
        name=f"{case.name}, rolled", make=lambda: Rolled(case.make(), case), culprit="", options=options
    )
