"""The losses of an own ``train_batch``: those that it adds beside ``forward``, and those that it updates with.

A loss that is given as a tensor takes the terms that wait, once:

    add_loss(penalty)       the penalty waits
    update(loss)            differentiates loss + penalty, and nothing waits any more
    update(loss)            differentiates this loss alone
"""

from __future__ import annotations

import functools
import operator
import warnings
from collections.abc import Callable, Mapping
from typing import Any, final

from torch import Tensor

from train_manager.loop.losses import Losses
from train_manager.metrics.averages import in_32_bits
from train_manager.telling.source_locations import users_level


@final
class StepMeans(dict[str, Tensor]):
    """Losses by name: values that are added within one step are summed up, and the mean is taken over steps.

    >>> import torch
    >>> means = StepMeans()
    >>> _ = means.add("policy", torch.tensor(1.)), means.add("policy", torch.tensor(3.))  # two parts of a step
    >>> means.end_step()
    >>> means.add("policy", torch.tensor(8.))
    tensor(6.)
    """

    def __init__(self) -> None:
        super().__init__()
        self._sums: dict[str, Tensor] = {}  # over all steps
        self._steps: dict[str, int] = {}  # how many steps each name was added in
        self._open: set[str] = set()  # the names that were added in the present step

    def add(self, name: str, value: Tensor) -> Tensor:
        """Add a value, without its graph, to the present step; return the mean so far."""
        value = value.detach()
        self._sums[name] = in_32_bits(self._sums[name]) + value if name in self._sums else value
        self._steps[name] = self._steps.get(name, 0) + (name not in self._open)
        self._open.add(name)
        # No division by 1: nearly every batch has one step, and on a GPU the division would be a kernel.
        self[name] = self._sums[name] / self._steps[name] if self._steps[name] > 1 else self._sums[name]
        return self[name]

    def end_step(self, name: str | None = None) -> None:
        """End the present step of a name, or of all names."""
        self._open.difference_update(list(self._open) if name is None else [name])


@final
class OwnLosses:
    """Collects what ``add_loss`` and ``report_loss`` are given outside of ``forward``, until an update takes it.

    >>> import torch
    >>> own = OwnLosses(Losses())
    >>> own.add("penalty", torch.tensor(.5, requires_grad=True))
    >>> own.take(torch.tensor(1.)).item(), own.take(torch.tensor(2.)).item()
    (1.5, 2.0)

    Args:
        losses: the loss terms by name, where each gets its curve. A term that ``forward`` has added keeps its name.
        is_resting: returns whether nothing is collected: hooks run, or a backward pass that runs submodules again.
    """

    __slots__ = ("_is_resting", "_losses", "_step_means", "_taken", "by_optimizer", "is_shown_apart", "waiting")

    def __init__(self, losses: Losses, is_resting: Callable[[], bool] = lambda: False) -> None:
        self._is_resting = is_resting
        self._losses, self._step_means = losses, StepMeans()
        self._taken: tuple[Tensor, Tensor] | None = None  # the last loss that took something, and the total it became
        self.waiting: dict[str, Tensor] = {}  # by name: added with a graph, and taken by no update yet
        self.by_optimizer = StepMeans()  # the losses that each optimizer was updated with
        self.is_shown_apart = False  # `loss` is only the sum over several optimizers: tables show the loss of each

    def add(self, name: str, value: Tensor) -> None:
        """Keep a scalar for the next update, and give it a curve; without a graph (``no_grad``) it has a curve only."""
        if value.requires_grad and not self._is_resting():
            self.waiting[name] = self.waiting[name] + value if name in self.waiting else value
            self.keep_part(name, value)
        self.collect(name, value)

    def collect(self, name: str, value: Tensor) -> None:
        """Give a scalar a curve."""
        if name not in self._losses.of_forward and not self._is_resting():
            self._losses[name] = self._step_means.add(name, value)

    def keep_part(self, name: str, value: Tensor, weight: float | Tensor | None = None) -> None:
        """Keep a scalar with its graph, times its weight in the loss, if the parts are asked for and it has a graph."""
        if not self._is_resting():
            self._losses.keep_part(name, value, weight)

    def take(self, loss: Tensor) -> Tensor:
        """Return the sum of a loss and of all that waits."""
        # Two optimizers that are updated with the same loss object get the same total: by now nothing waits any more.
        total = self._taken[1] if self._taken is not None and self._taken[0] is loss else loss
        if self.waiting:
            total = functools.reduce(operator.add, self.waiting.values(), total)
            self.waiting, self._taken = {}, (loss, total)
        return total

    def add_update(self, name: str, loss: Tensor) -> None:
        """Note the loss that an optimizer is updated with."""
        self._losses[name] = self.by_optimizer.add(name, loss)

    def end_step(self, name: str) -> None:
        """Note that an optimizer has done a step."""
        self.by_optimizer.end_step(name)
        self._step_means.end_step()

    def sum_of_updates(self) -> Tensor:
        """Return the sum of the losses of the optimizers."""
        return functools.reduce(operator.add, self.by_optimizer.values())

    def warn_of_waiting(self, warned_of: set[str]) -> None:
        """Warn of terms that no update has taken, once for each name: ``warned_of`` keeps the names."""
        names = [name for name in self.waiting if name not in warned_of]
        warned_of.update(names)
        if names:
            what = f"no update or backward came after train_batch added {' and '.join(map(repr, names))} by add_loss"
            cure = "call the model, or add_loss, before self.update(loss), or else under torch.no_grad()"
            warnings.warn(f"{what}, so it is not trained on ({cure})", stacklevel=users_level())


def display_values(values: Mapping[str, Any], by_optimizer: Mapping[str, Tensor]) -> Mapping[str, Any]:
    """Return fixtures as lines and bars show them: with the loss of each optimizer in place of a sum over several.

    >>> display_values({"loss": 3.0, "lr": 0.5}, {"losses/critic": 1.0, "losses/generator": 2.0})
    {'loss': {'losses/critic': 1.0, 'losses/generator': 2.0}, 'lr': 0.5}
    """
    return {**values, "loss": by_optimizer} if by_optimizer and "loss" in values else values
