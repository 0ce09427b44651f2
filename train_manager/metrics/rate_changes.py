"""Learning rates that are looked at after every step, and told when they change."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, final

from torch import Tensor
from torch.optim import Optimizer


@final
class RateChanges:
    """Find the steps whose learning rates differ from those of the step before.

    >>> import torch
    >>> optimizer = torch.optim.SGD([torch.zeros(1)], lr=.5)
    >>> rates = RateChanges()
    >>> rates.look({"optimizer": optimizer})
    >>> for step in range(3):
    ...     if rates.have_changed:
    ...         print(step, rates.take())
    ...     optimizer.param_groups[0]["lr"] = .1  # by a schedule, for the next step
    ...     rates.read()
    0 {'lr': 0.5}
    1 {'lr': 0.1}

    Attributes:
        have_changed: whether those of the present step have not been taken yet.
    """

    def __init__(self) -> None:
        self.have_changed = False
        self._names: list[str] = []  # of the optimizers; "" for a sole one
        self._lists: list[list[dict[str, Any]]] = []  # the groups of each optimizer
        self._groups: Sequence[Mapping[str, Any]] = ()
        self._has_tensors = False
        self._marks: list[Any] = []
        self._rates: list[Any] = []

    def look(self, optimizers: Mapping[str, Optimizer]) -> None:
        """Look which optimizers and groups there are, and read their rates."""
        self._names = [f"/{name}" for name in optimizers] if len(optimizers) > 1 else [""]
        self._lists = [optimizer.param_groups for optimizer in optimizers.values()]
        # The list of a sole optimizer, so that a group that is added is seen at once.
        self._groups = self._lists[0] if len(self._lists) == 1 else [group for one in self._lists for group in one]
        self._has_tensors = any(isinstance(group.get("lr"), Tensor) for group in self._groups)
        self.read()

    def forget(self) -> None:
        """Take the present rates for new ones."""
        self._marks = []
        self.read()

    def read(self) -> None:
        """Read the rates that the next step will have; a tensor is not read, but its counter of changes."""
        marks = [group["lr"] for group in self._groups]
        if self._has_tensors:
            marks = [(id(rate), rate._version) if isinstance(rate, Tensor) else rate for rate in marks]
        if marks != self._marks:
            self._marks, self.have_changed = marks, True
            rates = (group["lr"] for group in self._groups)
            self._rates = [rate.detach().clone() if isinstance(rate, Tensor) else rate for rate in rates]

    def take(self) -> dict[str, Any]:
        """Return the rates of the present step: "lr", or "lr/<optimizer>/<group>" where there are several."""
        self.have_changed = False
        rates = iter(self._rates)
        found = {}
        for name, groups in zip(self._names, self._lists, strict=False):
            for number, rate in zip(range(len(groups)), rates, strict=False):
                found[f"lr{name}" if len(groups) == 1 else f"lr{name}/{number}"] = rate
        return found
