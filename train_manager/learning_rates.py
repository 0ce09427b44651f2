"""The learning rates of an optimizer, read and written."""

from __future__ import annotations

from collections.abc import Iterable

from torch import Tensor
from torch.optim import Optimizer

Rate = float | Tensor
"""A number; or a tensor, which some optimizers want and read where it lies."""


def learning_rates(optimizer: Optimizer) -> tuple[Rate, ...]:
    """The present rates, one for each group of parameters; of a tensor a copy.

    >>> import torch
    >>> learning_rates(torch.optim.SGD([torch.zeros(1)], lr=0.5))
    (0.5,)
    """
    rates = (group["lr"] for group in optimizer.param_groups)
    return tuple(rate.detach().clone() if isinstance(rate, Tensor) else rate for rate in rates)


def set_learning_rates(optimizer: Optimizer, rates: Iterable[Rate]) -> None:
    """Give each group of parameters its rate; one that is a tensor stays the same tensor, with another value."""
    for group, rate in zip(optimizer.param_groups, rates, strict=True):
        if isinstance(group["lr"], Tensor):
            group["lr"].fill_(rate)
        else:
            group["lr"] = rate
