"""One of several optimizers; its learning rates and gradients; and the options of new optimizers."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, final

from torch import Tensor, nn
from torch.optim import Optimizer

from train_manager.core import declarations
from train_manager.core.calls import with_parameters
from train_manager.core.schedule import Schedule
from train_manager.core.scope import Scope
from train_manager.model.clipping import Limits
from train_manager.telling.errors import InputError, did_you_mean, near

Rate = float | Tensor
"""A number; or a tensor, which an optimizer with ``capturable=True`` reads on the GPU."""


def optimizers_of(train_manager: Any) -> dict[str, Optimizer]:
    """Return the optimizers of a manager by name; a sole optimizer without a name is called "optimizer"."""
    # Another Extensible may have the attribute `optimizer` only.
    found = getattr(train_manager, "optimizers", None)
    if found is None:
        found = train_manager.optimizer
    if isinstance(found, Mapping):
        return dict(found)
    return {} if found is None else {"optimizer": found}


def optimizer_of(train_manager: Any, name: str | None, asked_by: str) -> Optimizer | None:
    """Return the optimizer of this name, or the only one if no name is given; None if there is no optimizer at all.

    >>> import torch
    >>> from types import SimpleNamespace
    >>> generator, critic = (torch.optim.SGD([torch.zeros(1)], lr=rate) for rate in (.1, .2))
    >>> manager = SimpleNamespace(optimizer={"generator": generator, "critic": critic})
    >>> optimizer_of(manager, "critic", "WarmUp") is critic
    True

    Raises:
        InputError: no optimizer has this name; or there are several, and no name is given.
    """
    optimizers = optimizers_of(train_manager)
    if not optimizers:
        return None
    if name is None and len(optimizers) == 1:
        return next(iter(optimizers.values()))
    if name in optimizers:
        return optimizers[name]
    # No name was given, or a wrong one.
    names = ", ".join(map(repr, optimizers))
    if name is None:
        what = f"{asked_by} works on one optimizer, but there are {len(optimizers)}: {names}"
        raise InputError(
            what, name="optimizer", asked_by=asked_by, cure=f"name it: optimizer={next(iter(optimizers))!r}"
        )
    nearest = near(name, optimizers)
    cure = f"they are {names}" if len(optimizers) > 1 else f"there is only one, so leave out optimizer={name!r}"
    what = f"{asked_by} finds no optimizer {name!r}"
    raise InputError(what, name="optimizer", asked_by=asked_by, nearest=nearest, cure=did_you_mean(nearest) or cure)


@final
class StepsOf(Schedule):
    """Let a hook of ``train_optimizer_step`` run at the steps of one of several optimizers only."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __repr__(self) -> str:
        return f"StepsOf({self.name!r})"

    def should_run(self, optimizer_name: str | None = None) -> bool:
        return optimizer_name == self.name


def step_hook(
    name: str,
    asked: Iterable[str],
    function: Callable[[Mapping[str, Any]], Any],
    priority: int,
    optimizer: str | None,
    *,
    in_graph: Callable[[], Limits | None] | None = None,
) -> Callable[..., Any]:
    """Return a hook ``pre_train_optimizer_step`` that provides a fixture of ``train_step_batch``.

    It is made and not written as a method, because the name of the fixture depends on an argument of the extension.

    Args:
        name: the name of the fixture; with the name of one of several optimizers behind it if one is given.
        asked: the names of the fixtures that the function gets, in a mapping.
        function: returns the value of the fixture.
        priority: the priority of the hook.
        optimizer: the name of one of several optimizers, whose steps alone run the hook.
        in_graph: lets the hook run after a step that a graph has made; returns how the graph clips the gradients in
            place of the hook, or None if the hook needs nothing but the learning rates.
    """
    hook = with_parameters(asked, function)
    hook.in_graph = in_graph  # type: ignore[attr-defined]
    whole_name = name if optimizer is None else f"{name}_{optimizer}"
    hook = declarations.priority(priority)(declarations.provides(whole_name, stage="train_step_batch")(hook))
    return hook if optimizer is None else StepsOf(optimizer)(hook)


@final
class EveryStep(Schedule):
    """Let a hook of ``train_optimizer_step`` run at every n-th step of each optimizer, where ``every`` counts all."""

    remembers = ("counts",)

    def __init__(self, n: int) -> None:
        self.n = n
        self.counts: dict[str, int] = {}

    def __repr__(self) -> str:
        return f"EveryStep({self.n})"

    def opened(self, stage: Scope, alive: Mapping[str, Any]) -> None:
        name = alive["optimizer_name"]
        # A new dict, and not a change of the old one: a state that was given out, or a copy, may refer to that.
        self.counts = {**self.counts, name: self.counts.get(name, 0) + 1}

    def should_run(self, optimizer_name: str) -> bool:
        return self.counts[optimizer_name] % self.n == 0


def learning_rates(optimizer: Optimizer) -> tuple[Rate, ...]:
    """Return the current rate of each parameter group; a copy if it is a tensor.

    >>> import torch
    >>> learning_rates(torch.optim.SGD([torch.zeros(1)], lr=0.5))
    (0.5,)
    """
    rates = (group["lr"] for group in optimizer.param_groups)
    return tuple(rate.detach().clone() if isinstance(rate, Tensor) else rate for rate in rates)


def set_learning_rates(optimizer: Optimizer, rates: Iterable[Rate]) -> None:
    """Set the rate of each parameter group. A rate that is a tensor stays the same tensor, with a new value."""
    for group, rate in zip(optimizer.param_groups, rates, strict=True):
        if isinstance(group["lr"], Tensor):  # a captured CUDA graph reads the rate at this tensor's address
            group["lr"].fill_(rate)
        else:
            group["lr"] = rate


def settings_of(optimizer: Optimizer) -> list[dict[str, Any]]:
    """Return the settings of each parameter group: its rate, its momentum and so on. Tensors are copied."""
    return [
        {
            name: value.clone() if isinstance(value, Tensor) else value
            for name, value in group.items()
            if name != "params"
        }
        for group in optimizer.param_groups
    ]


def restore_settings(optimizer: Optimizer, settings: Iterable[dict[str, Any]]) -> None:
    """Set each parameter group to what ``settings_of`` returned. A tensor stays the same tensor."""
    for group, before in zip(optimizer.param_groups, settings, strict=True):
        for name, value in before.items():
            if isinstance(value, Tensor) and isinstance(group.get(name), Tensor):
                group[name].copy_(value)
            else:
                group[name] = value


def parameters_in(optimizer: Optimizer) -> Iterator[Tensor]:
    """Yield the parameters of all groups of an optimizer."""
    for group in optimizer.param_groups:
        yield from group["params"]


def in_order_of(model: Any, optimizer: Optimizer) -> list[Tensor]:
    """Return the parameters of an optimizer in the order of the model, and those that are not the model's after them.

    >>> import torch
    >>> net = nn.Linear(2, 2)
    >>> optimizer = torch.optim.SGD([{"params": net.bias}, {"params": net.weight}], lr=.1)
    >>> [tuple(parameter.shape) for parameter in in_order_of(net, optimizer)]
    [(2, 2), (2,)]
    """
    left = {id(parameter): parameter for parameter in parameters_in(optimizer)}
    own = model.parameters() if isinstance(model, nn.Module) else ()
    return [one for one in own if left.pop(id(one), None) is not None] + [*left.values()]


def parameters_with_gradients(optimizer: Optimizer | None) -> Iterator[Tensor]:
    """Yield the parameters of an optimizer that have a gradient; none if there is no optimizer.

    >>> import torch
    >>> weight, frozen = nn.Parameter(torch.ones(2)), nn.Parameter(torch.ones(2))
    >>> optimizer = torch.optim.SGD([weight, frozen], lr=.1)
    >>> weight.sum().backward()
    >>> [parameter is weight for parameter in parameters_with_gradients(optimizer)]
    [True]
    """
    for group in optimizer.param_groups if optimizer is not None else ():
        yield from (parameter for parameter in group["params"] if parameter.grad is not None)


def fused_argument(optimizer: Callable[..., Optimizer], parameters: list[nn.Parameter]) -> dict[str, bool]:
    """Return ``fused=True`` for an optimizer class of torch if all parameters are on a GPU: one kernel updates all."""
    # On the CPU, a fused update differs from a plain loop in the last bits (measured with AdamW, and with SGD with
    # momentum).
    of_torch = isinstance(optimizer, type) and optimizer.__module__.startswith("torch.optim.")
    on_gpu = bool(parameters) and all(p.device.type == "cuda" and p.is_floating_point() for p in parameters)
    return {"fused": True} if of_torch and on_gpu and "fused" in inspect.signature(optimizer).parameters else {}
