"""The optimizers of a training, made and checked as they are given."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any, Final

from torch import nn
from torch.optim import Optimizer

from train_manager.loop.arguments import kind_of, modules_of_loss
from train_manager.loop.groups import groups
from train_manager.model.optimizers import fused_argument, parameters_in
from train_manager.telling.errors import InputError, did_you_mean, near
from train_manager.telling.findings import Finding
from train_manager.telling.source_locations import users_level

EXAMPLE: Final = "optimizer=lambda parameters: torch.optim.SGD(parameters, lr=0.1)"
OF_A_MODEL: Final = "optimizer=lambda model: torch.optim.SGD(model.parameters(), lr=0.1)"

SOLE: Final = "optimizer"
"""The name of an optimizer that is the only one."""

NAMES_OF_THE_MODEL: Final = ("model", "model_or_params")
"""The first parameter of callables that make an optimizer of a module: timm's create_optimizer_v2 has the second."""

OptimizerArgument = Optimizer | Callable[[Any], Optimizer]
"""An optimizer, or a callable that makes one of parameters; or of the model, if its first parameter is called so."""


def require_optimizer(
    value: OptimizerArgument | Mapping[str, OptimizerArgument] | None, model: Any, loss: Any
) -> Optimizer | dict[str, Optimizer] | None:
    """Return the optimizer, or several by name; made if callables were given."""
    if value is None:
        return None
    if isinstance(value, Mapping):
        if not value:
            raise InputError("optimizer is an empty dict", name="optimizer", cure='name some: {"generator": Adam}')
        made = {name: _optimizer_of_submodule(given, name, model) for name, given in value.items()}
        require_optimizer_of(made, model, loss)
        warn_of_untrained_loss(made, loss)
        return made
    if isinstance(value, groups):
        value = partial(value, loss=modules_of_loss(loss))
    if not isinstance(value, Optimizer):
        given = model if takes_model(value) else _with_loss(model, loss)
        value = _make_optimizer(value, given, "the optimizer", kind_of(model))
    require_optimizer_of({"optimizer": value}, model, loss)
    warn_of_untrained_loss({"optimizer": value}, loss)
    return value


def takes_model(make: object) -> bool:
    """Return whether the first parameter of a callable has the name of the model.

    >>> takes_model(lambda model: None), takes_model(lambda parameters: None), takes_model(nn.Linear(2, 2))
    (True, False, False)
    """
    try:
        first = next(iter(inspect.signature(make).parameters.values()), None)  # type: ignore[arg-type]
    except (TypeError, ValueError):  # not callable, or a function in C without a signature
        return False
    return first is not None and first.name in NAMES_OF_THE_MODEL and first.kind is not first.KEYWORD_ONLY


def _optimizer_of_submodule(value: OptimizerArgument, name: str, model: Any) -> Optimizer:
    """Return an optimizer that has a name; a callable makes it of the submodule of the same name."""
    if not isinstance(name, str) or not name.isidentifier():
        cure = 'take an identifier: {"generator": torch.optim.AdamW}'
        raise InputError(f"an optimizer cannot be called {name!r}", name="optimizer", cure=cure)
    if isinstance(value, Optimizer):
        return value
    submodule = getattr(model, name, None)
    if callable(value) and not isinstance(submodule, nn.Module):
        submodules = [child for child, _ in model.named_children()] if isinstance(model, nn.Module) else []
        nearest = near(name, submodules)
        raise InputError(
            f"optimizer {name!r} is a callable of the parameters of model.{name}, which is not a module",
            name="optimizer",
            nearest=nearest,
            cure=did_you_mean(nearest)
            or f"name it after a part ({', '.join(submodules) or 'there is none'}), or give a ready optimizer",
        )
    given = submodule if takes_model(value) else list(_parameters_of(submodule))
    return _make_optimizer(value, given, f"optimizer {name!r}", f"model.{name}")


def _with_loss(model: Any, loss: Any) -> list[nn.Parameter]:
    """Return the parameters of the model and of the loss; warn if the loss has any."""
    own = list(model.parameters()) if isinstance(model, nn.Module) else []
    known = {id(parameter) for parameter in own}  # by identity: the loss may hold a submodule of the model
    more = [parameter for parameter in _parameters_of_loss(loss) if id(parameter) not in known]
    count = sum(parameter.numel() for parameter in more if parameter.requires_grad)
    if count:
        text = f"the loss ({_loss_name(loss)}) has {count} parameters, which are trained too"
        warnings.warn(text, stacklevel=users_level())
    return own + more


def _make_optimizer(make: Any, given: Any, which: str, whose: str) -> Optimizer:
    """Return the optimizer that a callable makes of a list of parameters, or of a module."""
    # A list, not a generator as Module.parameters(): the callable may walk over it more than once.
    parameters = given if isinstance(given, list) else list(_parameters_of(given))
    if not callable(make):
        what = f"{which} must be a torch optimizer or a callable that makes one, but is {kind_of(make)}"
        raise InputError(what, name="optimizer", cure="give the class: optimizer=torch.optim.AdamW")
    try:
        optimizer: Optimizer = make(given, **fused_argument(make, parameters))
    except ValueError as error:
        if parameters:  # an invalid option, such as lr=-1; else torch has refused the empty list
            raise
        what = f"{whose.removeprefix('a ')} has no parameters for an optimizer"
        cure = "leave the optimizer out, or give one that has the parameters to train"
        raise InputError(what, name="optimizer", cure=cure) from error
    except (TypeError, AttributeError) as error:
        error.add_note(f"{which} is made of a list of parameters: {EXAMPLE}; or of the model: {OF_A_MODEL}")
        raise
    if not hasattr(optimizer, "param_groups"):
        what = f"{which.removeprefix('the ')} must make a torch optimizer, but made {kind_of(optimizer)}"
        raise InputError(what, name="optimizer", cure=EXAMPLE)
    return optimizer


def require_optimizer_of(
    optimizers: Mapping[str, Any], model: Any, loss: Any, called_model: Any = None, *, cure: str = ""
) -> None:
    """Require of each optimizer a parameter of the model, of its wrapped form, or of the loss."""
    # Checked as the optimizer is given, and as a training call begins: the model may have been replaced since.
    trained = {id(parameter) for module in (model, called_model) for parameter in _parameters_of(module)}
    trained.update(map(id, _parameters_of_loss(loss)))
    for name, optimizer in optimizers.items():
        which = "the optimizer" if name == "optimizer" else f"optimizer {name!r}"
        if not hasattr(optimizer, "param_groups"):
            what = f"{which} must be a torch optimizer by now, but is {kind_of(optimizer)}"
            cure = "make it: tm.optimizer = torch.optim.AdamW(tm.model.parameters())"
            raise InputError(what, name="optimizer", cure=cure)
        if trained.isdisjoint(map(id, parameters_in(optimizer))):
            raise InputError(
                f"{which} ({type(optimizer).__name__}) has no parameter of the model, so nothing would be trained",
                name="optimizer",
                cure=cure
                or "make it with the parameters of this model, or give the class: optimizer=torch.optim.AdamW",
            )


def warn_of_untrained_loss(optimizers: Mapping[str, Any], loss: Any) -> None:
    """Warn of parameters of the loss that no optimizer has."""
    own = {id(parameter) for optimizer in optimizers.values() for parameter in parameters_in(optimizer)}
    missing = sum(p.numel() for p in _parameters_of_loss(loss) if p.requires_grad and id(p) not in own)
    if missing:
        which = "the optimizer lacks" if len(optimizers) == 1 else "no optimizer has"
        text = f"{which} {missing} parameters of the loss ({_loss_name(loss)}), so they are not trained"
        warnings.warn(f"{text} (give them to it, or set requires_grad=False)", stacklevel=users_level())


def _parameters_of(module: object) -> Iterable[nn.Parameter]:
    return module.parameters() if isinstance(module, nn.Module) else ()


def _parameters_of_loss(loss: Any) -> list[nn.Parameter]:
    return [parameter for module in modules_of_loss(loss) for parameter in module.parameters()]


def _loss_name(loss: Any) -> str:
    return type(getattr(loss, "__self__", loss)).__name__  # of a method, the class of its object


def find_rates_below_zero(optimizers: Mapping[str, Optimizer]) -> list[Finding]:
    """Return a finding of each optimizer with a learning rate below 0; a rate in a tensor is not read.

    >>> import torch
    >>> optimizer = torch.optim.SGD([torch.zeros(1)], lr=0.1)
    >>> find_rates_below_zero({"optimizer": optimizer})
    []
    >>> optimizer.param_groups[0]["lr"] -= 0.2
    >>> print(find_rates_below_zero({"optimizer": optimizer})[0])
    warning: a learning rate is below 0, so steps make the loss larger [negative-learning-rate]
      do     end the schedule at 0: max(0.0, rate)
    """
    what, cure = "a learning rate is below 0, so steps make the loss larger", "end the schedule at 0: max(0.0, rate)"
    rates = ((name, group.get("lr")) for name, optimizer in optimizers.items() for group in optimizer.param_groups)
    below = dict.fromkeys(name for name, rate in rates if isinstance(rate, float) and rate < 0)
    places = ("" if name == "optimizer" else name for name in below)
    return [Finding("learning rate", "warning", what, where, cure, code="negative-learning-rate") for where in places]
