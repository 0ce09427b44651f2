"""One optimizer whose parameter groups are of several classes, such as Muon for matrices and AdamW for the rest."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import islice
from typing import Any, final

import torch
from torch.optim import Optimizer


@final
class CombinedOptimizer(Optimizer):
    """An optimizer that has the parameter groups of its parts, and steps each of them.

    The parts share its ``state`` and the dicts of its groups: a schedule that sets a rate in a group, or a state that
    is loaded, reaches the part.

    >>> one, two = torch.nn.Parameter(torch.ones(1)), torch.nn.Parameter(torch.ones(1))
    >>> both = CombinedOptimizer([torch.optim.SGD([one], lr=0.5), torch.optim.Adam([two], lr=0.25)])
    >>> (one + two).sum().backward()
    >>> both.step()
    >>> one.item(), two.item(), len(both.param_groups), list(both.state) == [two]
    (0.5, 0.75, 2, True)

    Args:
        parts: optimizers of different parameters, whose ``step`` needs no closure.
    """

    def __init__(self, parts: Iterable[Optimizer]) -> None:
        found = tuple(parts)
        self.parts: tuple[Optimizer, ...] = ()  # none, while torch's constructor adds the groups that they have
        super().__init__([group for part in found for group in part.param_groups], {})
        self.parts = found
        for part in found:
            self.state.update(part.state)  # Adagrad has a state from its constructor on
        self._share()

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Add a group to the last part, with the options of that part as defaults."""
        last = self.parts[-1] if self.parts else self
        super().add_param_group({**last.defaults, **param_group})
        if last is not self:
            last.param_groups.append(self.param_groups[-1])

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Step all parts; a closure is called once, before them, and its loss is returned."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for part in self.parts:
            part.step()
        return loss

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), "parts": self.parts}

    def __setstate__(self, state: dict[str, Any]) -> None:
        # torch calls it with a loaded state too: with a new dict, and new groups, which the parts do not have yet.
        super().__setstate__(state)
        self._share()

    def _share(self) -> None:
        """Give the parts the state and the groups of the whole."""
        groups = iter(self.param_groups)
        for part in self.parts:
            own = list(islice(groups, len(part.param_groups)))
            part.__setstate__({"state": self.state, "param_groups": own})
