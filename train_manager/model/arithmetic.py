"""The step of an optimizer as plain arithmetic on its own state, which torch can compile: SGD, Adam and AdamW.

The tensors are those of the optimizer, so that a step of the optimizer itself, and a checkpoint, goes on from them.
What may change between two steps (learning rate, betas, decay, ...) is in a tensor: a constant would be compiled anew.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import torch
from torch import Tensor, nn
from torch.optim import SGD, Adam, AdamW, Optimizer
from torch.optim import optimizer as of_torch

SHARED: Final = ("maximize", "amsgrad", "differentiable", "capturable")
"""Options of torch's optimizers that the arithmetic does not have."""

FLOATS: Final = (torch.float32, torch.float64)

State = tuple[Tensor, ...] | None
"""The tensors that an optimizer keeps for a parameter; None if it has none yet, and needs them."""


class Rule(NamedTuple):
    """What of a parameter group is the same in each step: how many of its parameters are trained, and how."""

    kind: str  # "sgd" or "adam"
    size: int
    has_momentum: bool = False  # of SGD
    nesterov: bool = False
    is_decoupled: bool = False  # the decay of AdamW, which is not in the gradient
    others: tuple[Any, ...] = ()  # the options that the arithmetic does not have, so that a change of them is seen

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the tensors in the state of a parameter."""
        if self.kind == "adam":
            return "exp_avg", "exp_avg_sq", "step"
        return ("momentum_buffer",) if self.has_momentum else ()


class Trained(NamedTuple):
    """The parameters of an optimizer that are trained, as its next step finds them."""

    rules: tuple[Rule, ...]  # of each group
    values: list[float]  # what may change, of all groups one after another
    parameters: list[Tensor]
    states: list[State]

    @property
    def lacking(self) -> tuple[int, ...]:
        """The numbers of the parameters that have no state yet."""
        if None not in self.states:  # three times a step; the loop takes longer
            return ()
        return tuple(number for number, state in enumerate(self.states) if state is None)


def why_not(optimizer: Optimizer) -> str:
    """Return what in an optimizer the arithmetic does not have; empty if it has all of it.

    >>> weight = torch.nn.Parameter(torch.zeros(2))
    >>> why_not(AdamW([weight])), why_not(AdamW([weight], amsgrad=True))
    ('', 'the optimizer has amsgrad=True')
    """
    kind = type(optimizer)
    if kind not in (SGD, Adam, AdamW):
        return f"{kind.__name__} is not one of SGD, Adam and AdamW"
    if has_hooks(optimizer):
        return "functions are called around optimizer.step()"
    for group in optimizer.param_groups:
        for name in SHARED:
            if group.get(name):
                return f"the optimizer has {name}={group[name]!r}"
        if any(isinstance(value, Tensor) for value in (group["lr"], *group.get("betas", ()))):
            return "the learning rate or the betas of the optimizer are tensors"
        if any(type(p) not in (Tensor, nn.Parameter) or p.dtype not in FLOATS for p in group["params"]):
            return "a parameter is not a plain tensor of float32 or float64"
    devices = {str(parameter.device) for group in optimizer.param_groups for parameter in group["params"]}
    return "parameters are on several devices" if len(devices) > 1 else ""


def has_hooks(optimizer: Optimizer) -> bool:
    """Return whether functions are called around ``optimizer.step()`` that may do more than read learning rates."""
    own = vars(optimizer).get("step")
    # A scheduler of torch puts a function around the method, which only notes that it was called.
    is_noted = hasattr(own, "_wrapped_by_lr_sched") and getattr(own, "__wrapped__", None) is type(optimizer).step
    after = optimizer._optimizer_step_post_hooks
    of_all = of_torch._global_optimizer_pre_hooks or of_torch._global_optimizer_post_hooks
    before = optimizer._optimizer_step_pre_hooks.values()
    return bool(not (own is None or is_noted) or after or of_all) or not all(map(_only_reads_rates, before))


def _only_reads_rates(hook: Any) -> bool:
    return getattr(getattr(hook, "__self__", None), "only_reads_rates", False)


def note_step(optimizer: Optimizer) -> None:
    """Note a step that the arithmetic makes, as the method of the optimizer does."""
    optimizer._opt_called = True  # type: ignore[attr-defined]  # schedulers of torch look for it
    for hook in optimizer._optimizer_step_pre_hooks.values():
        hook(optimizer, (), {})


def trained_by(optimizer: Optimizer) -> Trained:
    """Return what the next step of an optimizer trains."""
    kept = optimizer.state
    rules: list[Rule] = []
    values: list[float] = []
    parameters: list[Tensor] = []
    states: list[State] = []
    for group in optimizer.param_groups:
        here = [parameter for parameter in group["params"] if parameter.requires_grad]
        rule = _rule_of(group, len(here))
        names = rule.names
        rules.append(rule)
        values += _values_of(group)
        parameters += here
        states += [_state_of(kept.get(parameter), names) for parameter in here] if names else [()] * len(here)
    return Trained(tuple(rules), values, parameters, states)


def _rule_of(group: dict[str, Any], size: int) -> Rule:
    others = tuple(map(group.get, SHARED))
    if "betas" in group:
        return Rule("adam", size, is_decoupled=bool(group["decoupled_weight_decay"]), others=others)
    return Rule("sgd", size, bool(group["momentum"]), bool(group["nesterov"]), others=others)


def _values_of(group: dict[str, Any]) -> tuple[float, ...]:
    if "betas" in group:
        return float(group["lr"]), *map(float, group["betas"]), group["eps"], group["weight_decay"]
    return float(group["lr"]), group["momentum"], group["dampening"], 0.0, group["weight_decay"]


def _state_of(state: dict[str, Any] | None, names: Sequence[str]) -> State:
    if not state:
        return None
    found: tuple[Any, ...] = tuple([state.get(name) for name in names])
    for one in found:  # not `any`, whose generator takes as long as the rest; this runs for each parameter in each step
        if one is None:
            return None
    return found


def step(
    rules: Sequence[Rule],
    values: Tensor,
    parameters: Sequence[Tensor],
    gradients: Sequence[Tensor | None],
    states: Sequence[State],
) -> None:
    """Step as the optimizer of these rules would; a parameter without a gradient stays as it is.

    >>> weight = torch.ones(1)
    >>> step([Rule("sgd", 1)], torch.tensor([0.5, 0, 0, 0, 0]), [weight], [torch.ones(1)], [()])
    >>> weight
    tensor([0.5000])
    """
    at = 0
    for rule, row in zip(rules, values.view(len(rules), -1).unbind(), strict=True):
        here = slice(at, at := at + rule.size)
        update = _step_adam if rule.kind == "adam" else _step_sgd
        for parameter, gradient, state in zip(parameters[here], gradients[here], states[here], strict=True):
            if gradient is not None:
                if state is None:
                    raise RuntimeError("a parameter has a gradient, and the optimizer no state for it")
                update(rule, row.unbind(), parameter, gradient, state)


def _step_sgd(
    rule: Rule, values: Sequence[Tensor], parameter: Tensor, gradient: Tensor, state: tuple[Tensor, ...]
) -> None:
    lr, momentum, dampening, _, decay = values
    gradient = gradient + (decay * parameter).to(gradient.dtype)
    if rule.has_momentum:
        (buffer,) = state
        buffer.mul_(momentum).add_((1 - dampening) * gradient)
        gradient = gradient + momentum * buffer if rule.nesterov else buffer
    parameter.sub_(lr * gradient)


def _step_adam(
    rule: Rule, values: Sequence[Tensor], parameter: Tensor, gradient: Tensor, state: tuple[Tensor, ...]
) -> None:
    lr, beta1, beta2, eps, decay = values
    mean, square, count = state
    count.add_(1)
    steps = count.to(parameter.device, torch.float64)  # a power of a beta near 1 needs the digits
    if rule.is_decoupled:
        parameter.mul_(1 - lr * decay)
    else:
        gradient = gradient + (decay * parameter).to(gradient.dtype)
    mean.lerp_(gradient, (1 - beta1).to(gradient.dtype))
    square.mul_(beta2).add_((1 - beta2) * gradient * gradient)
    root = _once((1 - beta2**steps).sqrt())
    parameter.sub_(_once(lr / (1 - beta1**steps)) * (mean / (square.sqrt() / root + eps)))


def _once(number: Tensor) -> Tensor:
    """Return a number as it is, which a graph then computes once, and not again for each element of a parameter."""
    # torch keeps the result of a reduction, which from nine elements on is a loop; it repeats all other arithmetic
    # where it is used, and the two powers took three quarters of the time of the step.
    return number.expand(9).amax()
