"""The parts of a training that a phase replaces: its model, loss, optimizer, data and lengths."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from torch.optim import Optimizer

from train_manager.core.errors import InputError
from train_manager.loop.arguments import (
    bind_loss,
    require_eval_data,
    require_loss,
    require_model,
    require_train_data,
)
from train_manager.loop.objectives import Objective
from train_manager.loop.optimizers import require_lr_schedule, require_optimizer
from train_manager.validation import require_count

KEPT: Final[Any] = object()
"""The default of an argument of ``phase``: the part stays as it is."""


PHASE_PARTS: Final = (
    "model",
    "_called_model",
    "loss",
    "objective",
    "optimizer",
    "lr_schedule",
    "train_data",
    "eval_data",
    "epochs",
    "steps_per_epoch",
    "_feed",
    "_epoch",
    "_run",
)
"""The attributes that are put back as a phase ends, also if they were set inside it."""


def replaced_parts(given: Mapping[str, Any], outer: Mapping[str, Any]) -> dict[str, Any]:
    """Return the attributes of a TrainManager that a phase sets.

    Args:
        given: the arguments of ``phase``; ``KEPT`` stands for a part that stays.
        outer: the attributes of the TrainManager, with ``_optimizer_argument``, which its constructor was given.

    Raises:
        InputError: an argument is invalid.
    """
    given = {name: value for name, value in given.items() if value is not KEPT}
    parts: dict[str, Any] = {}
    if "model" in given:
        parts |= {"model": require_model(given["model"], outer["device"]), "_called_model": None}
    if "loss" in given:
        parts |= _loss_parts(given["loss"], outer["device"])
    if "model" in given or "optimizer" in given:
        used = {**outer, **parts}
        argument = given["optimizer"] if "optimizer" in given else _argument_again(outer["_optimizer_argument"])
        parts["optimizer"] = require_optimizer(argument, used["model"], used["loss"])
        parts["lr_schedule"] = None  # that of another optimizer rests
    if "lr_schedule" in given:
        parts["lr_schedule"] = require_lr_schedule(given["lr_schedule"], {**outer, **parts}["optimizer"])
    if "train_data" in given:
        parts["train_data"] = require_train_data(given["train_data"])
    if "eval_data" in given:
        parts["eval_data"] = require_eval_data(given["eval_data"])
    if "epochs" in given:
        parts["epochs"] = require_count(given["epochs"], "epochs", at_least=0)
    if "steps_per_epoch" in given:
        steps = given["steps_per_epoch"]
        parts["steps_per_epoch"] = None if steps is None else require_count(steps, "steps_per_epoch", at_least=1)
    return parts


def _loss_parts(value: Any, device: Any) -> dict[str, Any]:
    objective = value if isinstance(value, Objective) else None
    loss = require_loss(value if objective is None else objective.loss, device)
    bind_loss(loss)  # here, so that an unusable one is refused at once
    return {"objective": objective, "loss": loss}


def _argument_again(argument: Any) -> Any:
    """Return the constructor's optimizer argument, which must be able to make an optimizer of another model."""
    given = argument.values() if isinstance(argument, Mapping) else (argument,)
    if any(isinstance(value, Optimizer) for value in given):
        raise InputError(
            "the phase has a model of its own, but the TrainManager was given a ready optimizer, which is of another",
            name="optimizer",
            cure="give the phase one: tm.phase(..., optimizer=torch.optim.AdamW)",
        )
    return argument
