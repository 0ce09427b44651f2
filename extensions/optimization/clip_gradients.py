"""Gradient clipping: all gradients together at most as long as a limit, or each number at most as large."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from train_manager.core.extension import Extension
from train_manager.loop.windows import require_no_closure
from train_manager.model.clipping import Limits
from train_manager.model.optimizers import in_order_of, optimizer_of, step_hook
from train_manager.model.per_object import PerObject
from train_manager.model.sharding import as_whole
from train_manager.rebuilding.recorded import recorded
from train_manager.telling.errors import InputError
from train_manager.validation import require_number

if TYPE_CHECKING:
    from train_manager.manager import TrainManager


@recorded
class ClipGradients(Extension):
    """Shorten the gradient of all parameters together to a largest norm, or cut each number in it, or both.

    >>> from train_manager.testing import tiny_manager
    >>> norms = []
    >>> show = Extension.of(post_train_step_batch=lambda grad_norm: norms.append(round(float(grad_norm), 2)))
    >>> result = tiny_manager(ClipGradients(max_norm=0.1), show).train()
    >>> norms
    [0.12, 0.13, 0.38]

    The norm is that of ``torch.nn.utils.clip_grad_norm_(model.parameters(), ...)`` to the bit, also if the optimizer
    has groups: its parameters are taken in the order of the model, and parameters of a loss after them.

    Each of several optimizers is clipped by itself, before its step. ``ClipGradients(1.0, optimizer="critic")`` clips
    one of them; give it again for the next.

    Nothing waits for the device. So a norm that is not finite is not an error here, and makes every gradient nan or
    zero; the loop and ``NonFiniteFinder`` check the loss.

    *Runs at:* the start of ``run``; the start of ``train_optimizer_step``, after hooks that unscale gradients, add to
    them or skip the stage (priority 10).

    *Asks for:* ``model``, ``optimizer``, ``optimizer_name`` and ``train_manager``.

    Beside ``Compile``, a graph clips within its step, and the norm is that of the graph.

    *Leaves behind:* ``grad_norm`` of ``train_step_batch``: the norm before clipping, a tensor; if a batch has several
    steps, the norm of the last step. With ``optimizer="critic"`` it is called ``grad_norm_critic``. It is not defined
    for a batch in which the optimizer does not step.

    Args:
        max_norm: the largest norm of all gradients together.
        value: the largest absolute value of each number in a gradient.
        norm_type: the order of the norm; ``math.inf`` takes the largest number.
        optimizer: the name of one of several optimizers; None for each of them.

    Raises:
        InputError: neither limit is given, a limit is not a number above 0, or there is no such optimizer; in training,
            the optimizer requires a closure.
    """

    def __init__(
        self,
        max_norm: float | None = None,
        value: float | None = None,
        *,
        norm_type: float = 2.0,
        optimizer: str | None = None,
    ) -> None:
        if max_norm is None and value is None:
            what = "ClipGradients needs max_norm or value, but was given neither"
            raise InputError(what, name="max_norm", cure="give one of them: ClipGradients(max_norm=1.0)")
        self.max_norm: float | None = None if max_norm is None else require_number(max_norm, "max_norm", above=0)
        self.value: float | None = None if value is None else require_number(value, "value", above=0)
        self.norm_type: float = norm_type if norm_type == math.inf else require_number(norm_type, "norm_type", above=0)

        self.optimizer = optimizer
        # By optimizer: how many parameters it had, and these in the order of the model.
        self._ordered: PerObject[Optimizer, tuple[int, list[Tensor]]] = PerObject()
        # Priority 10: after Accumulate (-20), MixedPrecision (-10),
        # SAM (-5) and your own hooks (0), which change gradients.
        asked = ("model", "optimizer", "optimizer_name", "train_manager")
        # A graph knows this clipping, and not that of a subclass.
        in_graph = self._limits if type(self).clip is ClipGradients.clip else None
        self.pre_train_optimizer_step = step_hook(
            "grad_norm", asked, self._clip_gradients, 10, optimizer, in_graph=in_graph
        )

    def pre_run(self, train_manager: TrainManager) -> None:
        if self.optimizer is not None:
            optimizer_of(train_manager, self.optimizer, "ClipGradients")  # a wrong name is an error

    def _clip_gradients(self, asked: Mapping[str, Any]) -> Tensor:  # the hook pre_train_optimizer_step: see __init__
        norm: Tensor | None = asked["train_manager"]._progress.step.clipped_norm
        if norm is not None:  # the graph that has made the step has clipped
            return norm
        require_no_closure(asked["optimizer"], asked["optimizer_name"], "ClipGradients")
        parameters = self._in_order(asked["optimizer"], asked["model"])
        return self.clip([parameter for parameter in parameters if parameter.grad is not None])

    def _limits(self) -> Limits:
        """Return how a graph clips."""
        return Limits(self.max_norm, self.value, self.norm_type)

    def _in_order(self, optimizer: Optimizer, model: Any) -> list[Tensor]:
        """Return the parameters of an optimizer in the order of the model."""
        count = sum(len(group["params"]) for group in optimizer.param_groups)
        known, parameters = self._ordered.get(optimizer, (0, []))
        if known != count:  # the optimizer is new, or has got a group since
            parameters = in_order_of(model, optimizer)
            self._ordered[optimizer] = count, parameters
        return parameters

    def replace_parameters(self, replaced: Mapping[nn.Parameter, nn.Parameter]) -> None:
        """Forget the parameters, so that the next step finds the new ones, which are in the model by then."""
        self._ordered.clear()

    def clip(self, parameters: list[Tensor]) -> Tensor:
        """Clip the gradients of these parameters in place, and return their norm from before."""
        # The norm stays a tensor: printing it waits for the device, clipping does not.
        norm = torch.nn.utils.get_total_norm([p.grad for p in parameters if p.grad is not None], self.norm_type)
        if norm.__class__ is not Tensor:
            norm = as_whole(norm)
        if self.max_norm is not None:
            torch.nn.utils.clip_grads_with_norm_(parameters, self.max_norm, norm)
        if self.value is not None:
            torch.nn.utils.clip_grad_value_(parameters, self.value)
        return norm
