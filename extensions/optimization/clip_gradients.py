"""Gradients that are not longer, or no single one larger, than a limit."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from train_manager.core.decorators import priority, provides
from train_manager.core.errors import InputError
from train_manager.core.extension import Extension
from train_manager.validation import require_number

if TYPE_CHECKING:
    from train_manager.manager import TrainManager


class ClipGradients(Extension):
    """Shortens the gradient of all parameters together to a longest norm, or cuts each number in it, or both.

    >>> from train_manager.testing import tiny_manager
    >>> norms = []
    >>> show = Extension.of(post_train_step_batch=lambda grad_norm: norms.append(round(float(grad_norm), 2)))
    >>> result = tiny_manager(ClipGradients(max_norm=0.1), show).train()
    >>> norms
    [0.12, 0.13, 0.38]

    Nothing waits for the device. A norm that is not finite is no error here, and makes every gradient nan or zero;
    ``StopOnNonFinite`` and the loop itself look at the loss.

    *Runs at:* the start of ``train_optimizer_step``, after hooks of priority 0: what unscales gradients, adds to them,
    or leaves out the step comes first.

    *Asks for:* the parameters of the optimizer.

    *Leaves behind:* ``grad_norm`` in ``train_step_batch``, the norm before it is clipped, a tensor. A batch after which
    the optimizer does not step has none.

    Args:
        max_norm: the norm of all gradients together is at most this.
        value: then each number of a gradient is between ``-value`` and ``value``.
        norm_type: which norm; ``math.inf`` is the largest number.

    Raises:
        InputError: neither limit is given, or one is no positive number.
    """

    def __init__(self, max_norm: float | None = None, value: float | None = None, *, norm_type: float = 2.0) -> None:
        if max_norm is None and value is None:
            raise InputError("ClipGradients was given no limit", name="max_norm", cure="ClipGradients(max_norm=1.0)")
        self.max_norm = None if max_norm is None else require_number(max_norm, "max_norm", above=0)
        self.value = None if value is None else require_number(value, "value", above=0)
        self.norm_type = norm_type if norm_type == math.inf else require_number(norm_type, "norm_type", above=0)

    @priority(10)
    @provides("grad_norm", stage="train_step_batch")
    def pre_train_optimizer_step(self, train_manager: TrainManager) -> Tensor:
        assert train_manager.optimizer is not None, "it is about to step"
        groups = train_manager.optimizer.param_groups
        parameters = [parameter for group in groups for parameter in group["params"] if parameter.grad is not None]
        return self.clip(parameters)

    def clip(self, parameters: list[Tensor]) -> Tensor:
        """Clip the gradients of these, in place, and return their norm as it was before."""
        norm = torch.nn.utils.get_total_norm([p.grad for p in parameters if p.grad is not None], self.norm_type)
        if self.max_norm is not None:
            torch.nn.utils.clip_grads_with_norm_(parameters, self.max_norm, norm)
        if self.value is not None:
            torch.nn.utils.clip_grad_value_(parameters, self.value)
        return norm
