"""Checks of the arguments of a TrainManager, and checks before a run opens.

``require_x`` returns ``x`` in the form that the loop uses, or raises an ``InputError`` that says what is wrong.
"""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable, Collection, Container, Iterable, Mapping
from types import FunctionType
from typing import Any, Final, Protocol, cast

import torch
from torch import Tensor, nn

from train_manager.core.calls import NamedCall
from train_manager.core.hooks import Hook
from train_manager.data.batch import FIXTURES_OF_A_BATCH as FIXTURES_OF_A_BATCH
from train_manager.data.readable import is_endless, is_read_once, refuse_unusable
from train_manager.loop.objectives import Objective
from train_manager.telling.errors import InputError
from train_manager.telling.source_locations import users_level


class TrainsItself(Protocol):
    """An object that is trained in place of a model, a loss and an optimizer."""

    def train_step(self, batch: Any) -> Tensor:
        """Do a whole training step on a batch, and return the loss."""


def require_device(value: torch.device | str | None) -> torch.device | None:
    """Return a device that this machine has."""
    if value is None:
        return None
    try:
        device = torch.device(value)
    except (RuntimeError, TypeError) as error:
        cure = 'write "cuda" for a GPU of NVIDIA or AMD, "mps" for one of Apple, or "cpu"'
        raise InputError(f"device must be one of torch's, but is {value!r:.60}", name="device", cure=cure) from error
    try:
        torch.empty(0, device=device)  # the only test that all kinds of devices understand
    except (
        RuntimeError,
        AssertionError,
        NotImplementedError,
        ImportError,
    ) as error:  # torch asserts that it was built with CUDA
        reason = str(error).partition("\n")[0].partition(". ")[0]
        cure = 'device="cpu"; or "cuda" if torch.cuda.is_available() else "cpu"'
        raise InputError(f"there is no device {str(device)!r} here: {reason}", name="device", cure=cure) from error
    return device


def require_model(value: nn.Module | TrainsItself, device: torch.device | None) -> Any:
    """Return a module on its device, or an object with ``train_step`` as it is."""
    if isinstance(value, nn.Module):
        return value if device is None else value.to(device)
    if callable(getattr(value, "train_step", None)) and not isinstance(value, type):
        return value
    name = getattr(value, "__name__", "") if isinstance(value, type | FunctionType) else ""
    cure = f"give an instance: model={name}()" if name.isidentifier() else "give an nn.Module"
    raise InputError(f"the model must be a torch.nn.Module, but is {kind_of(value)}", name="model", cure=cure)


def require_eval_step(model: Any) -> Callable[[Any], Tensor]:
    """Return the method that evaluates a batch, of a model that trains itself."""
    method = getattr(model, "eval_step", None)
    if not callable(method):
        cure = "write a method eval_step(self, batch) that returns the loss, or leave eval_data out"
        raise InputError(f"{type(model).__name__} trains itself but cannot be evaluated", name="model", cure=cure)
    return cast("Callable[[Any], Tensor]", method)


def require_loss(value: Callable[..., Tensor] | None, device: torch.device | None) -> Callable[..., Tensor] | None:
    """Return a callable of a prediction; on the device if it is a module, which may have weights."""
    if isinstance(value, type) or not (value is None or callable(value)):
        cure = "give a function or an instance: loss=nn.CrossEntropyLoss()"
        raise InputError(f"the loss must be a function or a module, but is {kind_of(value)}", name="loss", cure=cure)
    for module in modules_of_loss(value) if device is not None else ():
        module.to(device)
    return value


def modules_of_loss(loss: Any) -> list[nn.Module]:
    """Return the modules that are trained with a loss; of an ``Objective``, the modules with parameters to train."""
    modules, holder = modules_in_loss(loss), getattr(loss, "__self__", None)
    if not isinstance(holder, Objective) or isinstance(holder, nn.Module):
        return modules
    return [module for module in modules if any(parameter.requires_grad for parameter in module.parameters())]


def modules_in_loss(loss: Any) -> list[nn.Module]:
    """Return a loss that is a module, the module that it is a method of, or all modules of its ``Objective``."""
    holder = loss if isinstance(loss, nn.Module) else getattr(loss, "__self__", None)
    if isinstance(holder, nn.Module):
        return [holder]
    held = vars(holder).values() if isinstance(holder, Objective) else ()
    return [module for module in held if isinstance(module, nn.Module)]


def bind_loss(
    loss: Callable[..., Tensor] | None, fixtures: Container[object] = FIXTURES_OF_A_BATCH
) -> NamedCall | None:
    """Return the loss as a call by fixture names, or None if it takes ``(prediction, targets)`` as PyTorch's do.

    Args:
        loss: a function or a module.
        fixtures: the names of fixtures; a loss that takes targets by position may not call them by one of these.

    Raises:
        InputError: a parameter has the name of another fixture than the one that it would be given.
        HookError: it names the prediction, but cannot be called by names.
    """
    if loss is None:
        return None
    reads = loss.forward if isinstance(loss, nn.Module) else loss  # Module.__call__ takes *args and says nothing
    try:
        signature = inspect.signature(reads)
    except ValueError:  # a function in C without a signature
        return None
    parameters = signature.parameters
    called = getattr(loss, "__qualname__", type(loss).__name__)
    prediction = parameters.get("prediction")
    # The rule: with a required parameter `prediction`, all parameters are fixtures.
    if prediction is not None and prediction.default is inspect.Parameter.empty:
        return NamedCall(loss, label=f"loss {called}", reads=reads)
    _refuse_other_arguments(f"loss {called}({', '.join(parameters)})", signature, fixtures)
    return None


def _refuse_other_arguments(called: str, signature: inspect.Signature, fixtures: Container[object]) -> None:
    """Refuse a loss that cannot take two arguments, or that expects another fixture in their place."""
    wrong = ""
    # loss(prediction, batch) would be called with the targets as `batch`, and perhaps train on nonsense.
    for name, value in zip(signature.parameters, ("prediction", "targets"), strict=False):
        # torch calls the prediction `inputs` in many losses, so that name is not a mistake.
        if name != value and name in fixtures and (name, value) != ("inputs", "prediction"):
            wrong = wrong or f"would be given the {value} as {name!r}, which is a fixture"
    try:
        signature.bind("prediction", "targets")
    except TypeError:
        wrong = wrong or "cannot be called as loss(prediction, targets)"
    if wrong:
        cure = "call its parameter for the prediction `prediction`: then all of them are fixtures, found by name"
        raise InputError(f"{called} {wrong}", name="loss", asked_by=called, cure=cure)


def require_train_data(value: Iterable[Any] | None) -> Iterable[Any] | None:
    """Return an iterable of batches."""
    if value is not None:
        refuse_unusable(value, "train_data")
    return value


def require_eval_data(value: Mapping[str, Iterable[Any]] | Iterable[Any] | None) -> dict[str, Iterable[Any]]:
    """Return iterables of batches by name; an iterable without a name is called "eval"."""
    sets = dict(value) if isinstance(value, Mapping) else {} if value is None else {"eval": value}
    for name, data in sets.items():
        refuse_unusable(data, f"eval_data[{name!r}]" if isinstance(value, Mapping) else "eval_data")
        if is_endless(data):
            what = f"eval_data[{name!r}] ({type(data).__name__}) has no end, so its evaluation would not end either"
            raise InputError(what, name="eval_data", cure="give data that ends")
    return sets


def refuse_name_of_set(value: object, sets: Iterable[str]) -> None:
    """Refuse the name of a set where ``eval`` takes the data."""
    if isinstance(value, str):
        there = f"eval_data has {', '.join(map(repr, sets)) or 'no set'}"
        cure = f'{there}; other data: tm.eval({{"{value}": batches}})'
        if value in sets:
            cure = f'evaluate this set alone: tm.eval({{"{value}": tm.eval_data["{value}"]}})'
        what = f"eval() takes sets of batches, but was given the name {value!r:.60}"
        raise InputError(what, name="data", asked_by="eval", cure=cure)


def require_data(value: Iterable[Any], name: str) -> Iterable[Any]:
    """Return an iterable of batches."""
    refuse_unusable(value, name)
    return value


def refuse_a_pair(data: Any) -> None:
    """Refuse a tuple of tensors, which may be one batch or several."""
    if isinstance(data, tuple) and data and all(isinstance(part, Tensor) for part in data):
        what = f"data is a tuple of {len(data)} tensors, which may be one batch or several"
        raise InputError(what, name="data", cure="give a list of batches: tm.predict([batch]), or the inputs alone")


def require_last_batch(value: object) -> None:
    """Refuse the targets in place of ``last_batch``, which may be a scalar of any type."""
    if not isinstance(value, bool | int) and getattr(value, "shape", None) != ():
        raise two_arguments_error("train_on_batch", value)


def two_arguments_error(method: str, value: object) -> InputError:
    """Make the error for the targets as a second argument of a method that takes one batch."""
    what = f"{method} takes one batch, but its second argument is a {type(value).__name__}"
    return InputError(what, name="batch", asked_by=method, cure=f"{method}((inputs, targets))")


def kind_of(value: object) -> str:
    return f"the class {value.__name__}" if isinstance(value, type) else f"a {type(value).__name__}"


def require_ready_to_train(
    model: Any,
    has_optimizer: bool,
    train_data: Iterable[Any] | None,
    train_passes: int,
    eval_data: Mapping[str, Iterable[Any]],
    eval_passes: int,
) -> None:
    """Require training data, an optimizer, and data that can be read as often as the run needs."""
    # Checked before each run, as attributes may have been replaced since the constructor checked them.
    if train_data is None:
        raise InputError("there is no train_data to train on", name="train_data", cure="pass train_data=batches")
    if not has_optimizer and isinstance(model, nn.Module):
        cure = "pass optimizer=torch.optim.AdamW"
        raise InputError("there is no optimizer to train with", name="optimizer", cure=cure)
    _require_passes(train_data, "train_data", train_passes)
    for name, data in eval_data.items():
        _require_passes(data, f"eval_data[{name!r}]", eval_passes)


def _require_passes(data: Iterable[Any], name: str, passes: int) -> None:
    if passes > 1 and is_read_once(data):  # a generator: the second epoch would be empty
        what = f"{name} is a {type(data).__name__}, which can be read once, but {passes} passes are needed"
        raise InputError(what, name=name, cure="give a list, a DataLoader, or an object with __iter__")


def require_finite_epochs(train_data: Iterable[Any] | None, steps_per_epoch: int | None) -> None:
    """Require epochs that end: with the data, or after a number of steps."""
    if steps_per_epoch is None and is_endless(train_data):
        what = f"train_data ({type(train_data).__name__}) has no end, so no epoch of it would end either"
        cure = "pass steps_per_epoch=1000, or train by steps: tm.train_steps(1000)"
        raise InputError(what, name="train_data", cure=cure)


INNER: Final = frozenset(
    {
        "train_model_forward",
        "train_loss_forward",
        "train_backward",
        "train_optimizer_step",
        "eval_model_forward",
        "eval_loss_forward",
    }
)
"""The stages inside a batch; each stays closed while nothing looks into it."""


_WITHOUT: Final = {
    "train_dir": 'pass train_dir="runs/first", or leave that extension out: '
    "default_extensions(files=False) has none that needs it",
    "device": 'pass device="cpu"; or ask for inputs, and take inputs.device',
}
"""The arguments of a TrainManager that are fixtures only if they are given; the cure for a hook that names one."""


def require_arguments_for_hooks(hooks: Collection[Hook], given: Mapping[str, Any], provided: Collection[str]) -> None:
    """Require a train_dir and a device if a hook names them.

    Args:
        hooks: all hooks.
        given: the two arguments by name.
        provided: the names of the fixtures that extensions provide.

    Raises:
        InputError: an argument was not given.
    """
    for name in [name for name, value in given.items() if value is None and name not in provided]:
        needing = next((hook for hook in hooks if name in hook.call.required), None)
        if needing is not None and not any(name in hook.written for hook in hooks):
            raise InputError(
                f"{needing.label} (extension {needing.owner!r}) needs a {name}, but there is none",
                name=name,
                asked_by=needing.label,
                asked_at=needing.call.defined_at,
                cure=_WITHOUT[name],
            )


def warn_of_idle_hooks(hooks: Iterable[Hook], model: object) -> None:
    """Warn of hooks of the stages inside a step, which do not open if the model does the whole step."""
    idle = [hook.label for hook in hooks if hook.stage in INNER]
    if idle:
        what = f"{type(model).__name__} trains itself, so these hooks never run: {', '.join(idle)}"
        warnings.warn(f"{what} (the stages inside a batch do not open)", stacklevel=users_level())


def warn_of_hooks_that_never_ran(hooks: Iterable[Hook]) -> None:
    """Warn of hooks whose stage has not opened in a run."""
    # The check before the run refuses stages that are nowhere in the source; but it cannot read all source.
    for hook in hooks:
        warnings.warn(
            f"{hook.label} ({hook.whose}) never ran: no stage {hook.stage!r} has opened ({hook.call.defined_at})",
            stacklevel=users_level(),
        )
