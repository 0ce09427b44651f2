"""Gradient clipping: all gradients together at most as long as a limit, or each number at most as large."""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.optim import Optimizer

from train_manager.core.decorators import priority, provides
from train_manager.core.errors import InputError
from train_manager.core.extension import Extension
from train_manager.model.optimizers import parameters_with_gradients
from train_manager.validation import require_number


class ClipGradients(Extension):
    """Shorten the gradient of all parameters together to a largest norm, or cut each number in it, or both.

    >>> from train_manager.testing import tiny_manager
    >>> norms = []
    >>> show = Extension.of(post_train_step_batch=lambda grad_norm: norms.append(round(float(grad_norm), 2)))
    >>> result = tiny_manager(ClipGradients(max_norm=0.1), show).train()
    >>> norms
    [0.12, 0.13, 0.38]

    Nothing waits for the device. So a norm that is not finite is not an error here, and makes every gradient nan or
    zero; the loop and ``StopOnNonFinite`` check the loss.

    *Runs at:* the start of ``train_optimizer_step``, after hooks that unscale gradients, add to them or skip the stage
    (priority 10).

    *Asks for:* the optimizer.

    *Leaves behind:* ``grad_norm`` of ``train_step_batch``: the norm before clipping, a tensor. It is not defined for a
    batch after which the optimizer does not step.

    Args:
        max_norm: the largest norm of all gradients together.
        value: the largest absolute value of each number in a gradient.
        norm_type: the order of the norm; ``math.inf`` takes the largest number.

    Raises:
        InputError: neither limit is given, or a limit is not a number above 0.
    """

    def __init__(self, max_norm: float | None = None, value: float | None = None, *, norm_type: float = 2.0) -> None:
        if max_norm is None and value is None:
            what = "ClipGradients needs max_norm or value, but was given neither"
            raise InputError(what, name="max_norm", cure="give one of them: ClipGradients(max_norm=1.0)")
        self.max_norm = None if max_norm is None else require_number(max_norm, "max_norm", above=0)
        self.value = None if value is None else require_number(value, "value", above=0)
        self.norm_type = norm_type if norm_type == math.inf else require_number(norm_type, "norm_type", above=0)

    @priority(10)  # after Accumulate, MixedPrecision, SAM and your own hooks (0) that change gradients
    @provides("grad_norm", stage="train_step_batch")
    def pre_train_optimizer_step(self, optimizer: Optimizer) -> Tensor:
        return self.clip(list(parameters_with_gradients(optimizer)))

    def clip(self, parameters: list[Tensor]) -> Tensor:
        """Clip the gradients of these parameters in place, and return their norm from before."""
        norm = torch.nn.utils.get_total_norm([p.grad for p in parameters if p.grad is not None], self.norm_type)
        if self.max_norm is not None:
            torch.nn.utils.clip_grads_with_norm_(parameters, self.max_norm, norm)
        if self.value is not None:
            torch.nn.utils.clip_grad_value_(parameters, self.value)
        return norm
