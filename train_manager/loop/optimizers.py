"""The optimizers and learning rate schedules of a training, made and checked as they are given."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from torch import nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import ReduceLROnPlateau

from train_manager.core.errors import InputError
from train_manager.loop.arguments import kind_of
from train_manager.model.optimizers import fused_argument, require_scheduler_factory

OptimizerArgument = Optimizer | Callable[[Iterable[nn.Parameter]], Optimizer]
"""An optimizer, or a callable that makes one of parameters."""

Schedules = Any
"""A scheduler of torch, which has no common base class with ``step()``; or a dict of them by optimizer."""

# ---- optimizers ------------------------------------------------------------------------------------------------------


def require_optimizer(
    value: OptimizerArgument | Mapping[str, OptimizerArgument] | None, model: Any, loss: Any
) -> Optimizer | dict[str, Optimizer] | None:
    """Return the optimizer, or several by name; made if callables were given."""
    if value is None:
        return None
    if isinstance(value, Mapping):
        if not value:
            raise InputError("optimizer is an empty dict", name="optimizer", cure='name some: {"generator": Adam}')
        return {name: _optimizer_of_part(given, name, model) for name, given in value.items()}
    made = value if isinstance(value, Optimizer) else _made(value, _with_loss(model, loss), kind_of(model))
    _require_parameter_of(made, (model, loss))
    if isinstance(value, Optimizer):
        _warn_of_untrained_loss(made, loss)
    return made


def _optimizer_of_part(value: OptimizerArgument, name: str, model: Any) -> Optimizer:
    """Return an optimizer that has a name; a callable makes it of the part of the model that has the same name."""
    if not isinstance(value, Optimizer):
        part = getattr(model, name, None)
        if not isinstance(part, nn.Module):
            parts = [child for child, _ in model.named_children()] if isinstance(model, nn.Module) else []
            raise InputError(
                f"optimizer {name!r} is a callable of the parameters of model.{name}, which is not a module",
                name="optimizer",
                cure=f"name it after a part ({', '.join(parts) or 'there is none'}), or give a ready optimizer",
            )
        value = _made(value, list(part.parameters()), f"model.{name}")
    _require_parameter_of(value, (model,))
    return value


def _with_loss(model: Any, loss: Any) -> list[nn.Parameter]:
    """Return the parameters of the model and of the loss, which may be a module with some: those are said."""
    own = list(model.parameters()) if isinstance(model, nn.Module) else []
    known = {id(parameter) for parameter in own}
    more = [parameter for parameter in _parameters_of(loss) if id(parameter) not in known]
    if more:
        count = sum(parameter.numel() for parameter in more)
        warnings.warn(f"the loss ({type(loss).__name__}) has {count} parameters, which are trained too", stacklevel=4)
    return own + more


def _made(make: Any, parameters: list[nn.Parameter], whose: str) -> Optimizer:
    """Return the optimizer that a callable makes; of a list, which it can walk more than once."""
    if not callable(make):
        what = f"the optimizer must be a torch optimizer or a callable that makes one, but is {kind_of(make)}"
        raise InputError(what, name="optimizer", cure="give the class: optimizer=torch.optim.AdamW")
    try:
        optimizer: Optimizer = make(parameters, **fused_argument(make, parameters))
    except ValueError as error:
        if parameters:
            raise
        what = f"{whose.removeprefix('a ')} has no parameters for an optimizer"
        cure = "leave the optimizer out, or give one that has the parameters to train"
        raise InputError(what, name="optimizer", cure=cure) from error
    if not hasattr(optimizer, "param_groups"):
        what = f"optimizer must make a torch optimizer, but made {kind_of(optimizer)}"
        cure = "optimizer=lambda parameters: torch.optim.SGD(parameters, lr=0.1)"
        raise InputError(what, name="optimizer", cure=cure)
    return optimizer


def _require_parameter_of(optimizer: Optimizer, modules: Iterable[object]) -> None:
    if not _has_parameter_of(optimizer, modules):
        raise InputError(
            f"the optimizer ({type(optimizer).__name__}) has no parameter of the model, so nothing would be trained",
            name="optimizer",
            cure="make it with the parameters of this model, or give the class: optimizer=torch.optim.AdamW",
        )


def _warn_of_untrained_loss(optimizer: Optimizer, loss: Any) -> None:
    own = {id(parameter) for group in optimizer.param_groups for parameter in group["params"]}
    missing = sum(p.numel() for p in _parameters_of(loss) if p.requires_grad and id(p) not in own)
    if missing:
        warnings.warn(
            f"the optimizer ({type(optimizer).__name__}) lacks {missing} parameters of the loss "
            f"({type(loss).__name__}), so they are not trained (give them to it, or set requires_grad=False)",
            stacklevel=4,
        )


def _has_parameter_of(optimizer: Optimizer, modules: Iterable[object]) -> bool:
    own = {id(parameter) for group in optimizer.param_groups for parameter in group["params"]}
    return any(id(parameter) in own for module in modules for parameter in _parameters_of(module))


def _parameters_of(module: object) -> Iterable[nn.Parameter]:
    return module.parameters() if isinstance(module, nn.Module) else ()


def require_optimizer_of(modules: Iterable[nn.Module], optimizers: Iterable[Optimizer]) -> None:
    """Require optimizers of these modules: one of them may have been replaced since it was made."""
    modules = list(modules)
    for optimizer in optimizers:
        if any(group["params"] for group in optimizer.param_groups) and not _has_parameter_of(optimizer, modules):
            raise InputError(
                "the optimizer has no parameter of the model, so nothing would be trained",
                name="optimizer",
                cure="was tm.model replaced? make a new optimizer of it: tm.optimizer = AdamW(tm.model.parameters())",
            )


# ---- learning rate schedules -----------------------------------------------------------------------------------------


def require_lr_schedule(value: Any, optimizer: Optimizer | dict[str, Optimizer] | None) -> Schedules:
    """Return the scheduler that a callable makes of the optimizer; or several, by the names of the optimizers."""
    if value is None:
        return None
    if optimizer is None:
        raise InputError("lr_schedule needs an optimizer, but there is none", name="lr_schedule")
    if isinstance(value, Mapping) != isinstance(optimizer, dict):
        cure = "give a dict with the names of the optimizers, or one callable for one optimizer"
        raise InputError("lr_schedule and optimizer must both be dicts, or neither", name="lr_schedule", cure=cure)
    if not isinstance(optimizer, dict):
        return _scheduler(value, optimizer)
    unknown = [name for name in value if name not in optimizer]
    if unknown:
        known = " and ".join(map(repr, optimizer))
        what = f"lr_schedule names {unknown[0]!r}, but the optimizers are {known}"
        raise InputError(what, name="lr_schedule", cure="give it the names of the optimizers")
    return {name: _scheduler(make, optimizer[name]) for name, make in value.items()}


def _scheduler(value: Any, optimizer: Optimizer) -> Any:
    cure = "lr_schedule=lambda optimizer: torch.optim.lr_scheduler.StepLR(optimizer, 10)"
    if not callable(value):
        what = f"lr_schedule must be a callable of the optimizer, but is {kind_of(value)}"
        raise InputError(what, name="lr_schedule", cure=cure)
    require_scheduler_factory(value, "lr_schedule", "lr_schedule={}")
    scheduler = value(optimizer)
    if not hasattr(scheduler, "step"):
        what = f"lr_schedule must make a scheduler, but made {kind_of(scheduler)}, which has no step()"
        raise InputError(what, name="lr_schedule", cure=cure)
    if isinstance(scheduler, ReduceLROnPlateau):
        what = "lr_schedule must make a scheduler that steps without a metric, but made a ReduceLROnPlateau"
        cure = "step it with a metric: extensions=[LRSchedule(make, metric=...)]"
        raise InputError(what, name="lr_schedule", cure=cure)
    return scheduler


def step_schedulers(schedulers: Schedules) -> None:
    """Step each scheduler, as an epoch ends."""
    if schedulers is not None:
        for scheduler in schedulers.values() if isinstance(schedulers, dict) else (schedulers,):
            scheduler.step()
