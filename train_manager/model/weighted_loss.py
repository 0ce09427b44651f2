"""The losses of one of several processes, weighted by its part of the batch, and the means of their gradients.

The mean over R processes of the gradients of ``loss * R * examples / all_examples`` is the gradient of the mean loss
over all examples, as in one process.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.optim import Optimizer

from train_manager.model.optimizers import parameters_in


class WeightedLoss:
    """Weighs the losses of a process by its part of the batch, and makes the gradients of all processes one.

    Args:
        number: of processes.
        group: the group for gradients; None for the default group.
    """

    def __init__(self, number: int, group: Any = None) -> None:
        self._number, self._group = number, group
        self.weight = 1.0  # of the present batch

    def set_share(self, examples: float, of: float) -> None:
        """Note how many of the examples of a batch this process has."""
        self.weight = self._number * examples / of if of else 0.0

    def weigh(self, loss: Tensor) -> Tensor:
        """Return the loss of this process, weighted so that the mean of the gradients is that of the whole batch."""
        return loss if self.weight == 1.0 else loss * self.weight

    def gather_late(self, optimizer: Optimizer) -> None:
        """Make the gradients one of a window that has ended in a batch without a backward pass."""
        for parameter, mean in zip(parameters_in(optimizer), self.mean_gradients(optimizer), strict=True):
            parameter.grad = mean

    def mean_loss(self, loss: Tensor) -> Tensor:
        """Return the loss of the whole batch, of the losses of all processes."""
        whole = loss.detach() * self.weight
        dist.all_reduce(whole, group=self._group)
        return whole / self._number

    def gather(self, optimizer: Optimizer) -> None:
        """Make the gradients one of a window that is complete: here the backward pass has done it."""

    @torch.no_grad()
    def mean_gradients(self, optimizer: Optimizer) -> list[Tensor | None]:
        """Return the gradients of a window, complete or not, as their mean over all processes; they stay as they are.

        Returns:
            One for each parameter, in the order of the optimizer; None if no process has a gradient of it.
        """
        parameters = list(parameters_in(optimizer))
        used = torch.tensor([one.grad is not None for one in parameters], dtype=torch.int, device=parameters[0].device)
        dist.all_reduce(used, group=self._group)
        return [self._mean_of(one) if is_used else None for one, is_used in zip(parameters, used, strict=True)]

    def _mean_of(self, parameter: Tensor) -> Tensor:
        mean = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad.to_dense().clone()
        dist.all_reduce(mean, group=self._group)
        return mean / self._number
