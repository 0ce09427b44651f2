"""What a TrainManager requires of its arguments: each function returns one in usable form, or says what is wrong."""

from __future__ import annotations

import inspect
import os
import warnings
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Protocol, cast

import torch
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import ReduceLROnPlateau

from train_manager.core.errors import InputError
from train_manager.core.hooks import Hook
from train_manager.core.signature import NamedCall
from train_manager.data.iteration import is_endless, is_read_once, refuse_unusable
from train_manager.model.optimizers import fused_argument, require_scheduler_factory


class TrainsItself(Protocol):
    """What can be trained in place of a model and a loss."""

    def train_step(self, batch: Any) -> Tensor:
        """Do a whole training step on a batch, and return the loss."""


def require_eval_step(model: Any) -> Callable[[Any], Tensor]:
    """How what trains itself is evaluated."""
    found = getattr(model, "eval_step", None)
    if not callable(found):
        raise InputError(
            f"{type(model).__name__} trains itself but cannot be evaluated",
            name="model",
            cure="write a method eval_step(self, batch) that returns the loss, or leave eval_data out",
        )
    return cast("Callable[[Any], Tensor]", found)


def require_model(value: nn.Module | TrainsItself, device: torch.device | None) -> Any:
    """A module, on its device; or what trains itself."""
    if (
        not isinstance(value, nn.Module)
        and not isinstance(value, type)
        and callable(getattr(value, "train_step", None))
    ):
        return value
    if not isinstance(value, nn.Module):
        raise InputError(
            f"model is a {type(value).__name__}, not a torch.nn.Module",
            name="model",
            cure="give an instance: model=Net()" if isinstance(value, type) else "wrap it in an nn.Module",
        )
    return value if device is None else value.to(device)


def require_optimizer(
    value: Optimizer | Callable[[Iterable[nn.Parameter]], Optimizer] | None,
    model: nn.Module,
    loss: Callable[..., Tensor] | None,
) -> Optimizer | None:
    """An optimizer of these parameters: as it is, or made of them."""
    if value is None or not (isinstance(value, Optimizer) or callable(value)):
        if value is None:
            return None
        raise InputError(
            f"optimizer is a {type(value).__name__}",
            name="optimizer",
            cure="give a torch optimizer, or a callable that makes one of the parameters",
        )
    # A list, which the callable can walk more than once: a second pass over a generator would find nothing.
    parameters = list(_parameters(model))
    try:
        found = value if isinstance(value, Optimizer) else value(parameters, **fused_argument(value, parameters))
    except ValueError as error:
        if parameters:
            raise
        raise InputError(
            f"{type(model).__name__} has no parameters to make an optimizer of",
            name="optimizer",
            cure="leave the optimizer out, or give one of the parameters that are to be trained",
        ) from error
    if not hasattr(found, "param_groups"):
        raise InputError(
            f"optimizer made a {type(found).__name__}, not a torch optimizer",
            name="optimizer",
            cure="optimizer=lambda parameters: torch.optim.SGD(parameters, lr=0.1)",
        )
    known = {id(parameter) for module in (model, loss) for parameter in _parameters(module)}
    if not any(id(parameter) in known for group in found.param_groups for parameter in group["params"]):
        raise InputError(
            f"the optimizer ({type(found).__name__}) holds no parameter of the model, so nothing would be trained",
            name="optimizer",
            cure="make it of this model's parameters, or give the class: optimizer=torch.optim.AdamW",
        )
    return found


def require_lr_schedule(value: Callable[[Optimizer], Any] | None, optimizer: Optimizer | None) -> Any:
    """A scheduler made of the optimizer."""
    if value is None:
        return None
    if optimizer is None:
        raise InputError("lr_schedule needs an optimizer, and there is none", name="lr_schedule")
    if not callable(value):
        raise InputError(
            f"lr_schedule is a {type(value).__name__}, not a callable of the optimizer",
            name="lr_schedule",
            cure="lr_schedule=lambda optimizer: torch.optim.lr_scheduler.StepLR(optimizer, 10)",
        )
    require_scheduler_factory(value, "lr_schedule", "lr_schedule={}")
    schedule = value(optimizer)
    if not hasattr(schedule, "step"):
        raise InputError(
            f"lr_schedule made a {type(schedule).__name__}, which has no step()",
            name="lr_schedule",
            cure="lr_schedule=lambda optimizer: torch.optim.lr_scheduler.StepLR(optimizer, 10)",
        )
    if isinstance(schedule, ReduceLROnPlateau):
        raise InputError(
            "lr_schedule made a ReduceLROnPlateau, which is stepped with a metric, not per epoch",
            name="lr_schedule",
            cure="step it in a hook: `def post_eval(self, eval_results)`",
        )
    return schedule


def require_train_dir(value: Path | str | None) -> Path | None:
    """A path."""
    if not (value is None or isinstance(value, str | os.PathLike)):
        raise InputError(f"train_dir is {value!r:.60}", name="train_dir", cure='give a path: train_dir="runs/first"')
    return None if value is None else Path(value)


def require_train_data(value: Iterable[Any] | None) -> Iterable[Any] | None:
    """An iterable of batches."""
    if value is not None:
        refuse_unusable(value, "train_data")
    return value


def require_eval_data(value: Mapping[str, Iterable[Any]] | Iterable[Any] | None) -> dict[str, Iterable[Any]]:
    """Iterables of batches by name; one that comes without a name is called "eval"."""
    sets = dict(value) if isinstance(value, Mapping) else {} if value is None else {"eval": value}
    for name, data in sets.items():
        refuse_unusable(data, f"eval_data[{name!r}]")
        if is_endless(data):
            raise InputError(
                f"eval_data[{name!r}] ({type(data).__name__}) has no end, and no evaluation comes through it",
                name="eval_data",
                cure="give data that ends",
            )
    return sets


def require_loss(value: Callable[..., Tensor] | None, device: torch.device | None) -> Callable[..., Tensor] | None:
    """Something that can be called with a prediction; on the device, where it is a module with weights of its own."""
    if isinstance(value, type) or not (value is None or callable(value)):
        raise InputError(
            f"loss is {'the class ' + value.__name__ if isinstance(value, type) else 'a ' + type(value).__name__}",
            name="loss",
            cure="give a function or an instance: loss=nn.CrossEntropyLoss()",
        )
    return value.to(device) if device is not None and isinstance(value, nn.Module) else value


def loss_by_name(loss: Callable[..., Tensor] | None) -> NamedCall | None:
    """The loss as a function of fixtures; None where it is one of ``(prediction, targets)``, as PyTorch's are."""
    if loss is None:
        return None
    reads = loss.forward if isinstance(loss, nn.Module) else loss
    try:
        parameters = inspect.signature(reads).parameters
    except ValueError:  # written in C, without a signature
        return None
    prediction = parameters.get("prediction")
    if prediction is None or prediction.default is not inspect.Parameter.empty:
        return None
    return NamedCall(loss, label=f"loss {getattr(loss, '__qualname__', type(loss).__name__)}", reads=reads)


def require_ready_to_train(
    model: Any,
    optimizer: Optimizer | None,
    train_data: Iterable[Any] | None,
    train_passes: int,
    eval_data: Mapping[str, Iterable[Any]],
    eval_passes: int,
) -> None:
    """All that training needs, and data that lasts for it."""
    if train_data is None:
        raise InputError("there is no train_data to train on", name="train_data", cure="pass train_data=batches")
    if optimizer is None and isinstance(model, nn.Module):
        raise InputError(
            "there is no optimizer to train with", name="optimizer", cure="pass optimizer=torch.optim.AdamW"
        )
    walked = [("train_data", train_data, train_passes)]
    walked += [(f"eval_data[{name!r}]", data, eval_passes) for name, data in eval_data.items()]
    for name, data, passes in walked:
        if passes > 1 and is_read_once(data):
            raise InputError(
                f"{name} is a {type(data).__name__}, which can be read once, but {passes} passes are due",
                name=name,
                cure="give a list, a DataLoader, or an object with __iter__",
            )


def require_optimizer_of(modules: Iterable[nn.Module], optimizer: Optimizer | None) -> None:
    """An optimizer of these modules: one of them may have been replaced since it was made."""
    if optimizer is None:
        return
    own = {id(parameter) for group in optimizer.param_groups for parameter in group["params"]}
    if own and not any(id(parameter) in own for module in modules for parameter in module.parameters()):
        raise InputError(
            "the optimizer has no parameter of the model, so nothing would be trained",
            name="optimizer",
            cure="was tm.model replaced? make a new optimizer of it: tm.optimizer = AdamW(tm.model.parameters())",
        )


def require_end_of_epochs(train_data: Iterable[Any] | None, steps_per_epoch: int | None) -> None:
    """Epochs that end: by the data, or by a number of steps."""
    if steps_per_epoch is None and is_endless(train_data):
        raise InputError(
            f"train_data ({type(train_data).__name__}) has no end, so no epoch of it would end either",
            name="train_data",
            cure="pass steps_per_epoch=1000, or train by steps: tm.train_steps(1000)",
        )


def require_train_dir_where_needed(hooks: Iterable[Hook], has_train_dir: bool) -> None:
    """A train_dir, if a hook asks for it."""
    needing = next((hook for hook in hooks if "train_dir" in hook.call.required), None)
    if needing is not None and not has_train_dir:
        raise InputError(
            f"{needing.label} (extension {needing.owner!r}) needs a train_dir, and there is none",
            name="train_dir",
            asked_by=needing.label,
            asked_at=needing.call.defined_at,
            cure='pass train_dir="runs/first", or leave that extension out',
        )


def require_folder(path: Path) -> None:
    """A folder at this path, made where there is none."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except (FileExistsError, NotADirectoryError) as error:
        raise InputError(
            f"train_dir is {str(path)!r}, where a file is in the way",
            name="train_dir",
            cure="give the path of a folder",
        ) from error


def _parameters(holder: object) -> Iterable[nn.Parameter]:
    return holder.parameters() if isinstance(holder, nn.Module) else ()


# ---- hooks ---------------------------------------------------------------------------------------------------------

INSIDE_A_STEP = frozenset(
    {
        "train_model_forward",
        "train_loss_forward",
        "train_backward",
        "train_optimizer_step",
        "eval_model_forward",
        "eval_loss_forward",
    }
)


def warn_of_idle_hooks(hooks: Iterable[Hook], model: object) -> None:
    """Warn of hooks of the stages inside a step, which do not open if the model does the whole step."""
    idle = [hook.label for hook in hooks if hook.stage in INSIDE_A_STEP]
    if idle:
        what = f"{type(model).__name__} trains itself, so these hooks never run: {', '.join(idle)}"
        warnings.warn(f"{what} (the stages inside a batch do not open)", stacklevel=3)


def warn_of_hooks_that_never_ran(hooks: Iterable[Hook]) -> None:
    """Warn of hooks whose stage has not opened: if a part of the source cannot be read, a mistake shows only here."""
    for hook in hooks:
        warnings.warn(
            f"{hook.label} ({hook.whose}) never ran: no stage {hook.stage!r} has opened ({hook.call.defined_at})",
            stacklevel=3,
        )
