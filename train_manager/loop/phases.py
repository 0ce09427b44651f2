"""The parts of a training that a phase replaces, and which phases were opened: a resumed program opens them again."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, final

from torch.optim import Optimizer

from train_manager.loop.arguments import (
    bind_loss,
    require_eval_data,
    require_loss,
    require_model,
    require_train_data,
)
from train_manager.loop.objectives import Objective
from train_manager.loop.optimizers import require_lr_schedule, require_optimizer
from train_manager.telling.errors import CheckpointError, InputError
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
    "_brought_by",
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


@final
@dataclass
class PhaseLog:
    """Which phases a program has opened, in the order in which it did.

    A program that goes on from a checkpoint opens them again. In those that were completed nothing is trained; in the
    one that the checkpoint was written in, the training goes on.

    Attributes:
        entered: for each phase its path of names, its ``epoch_num``, and whether it was completed.
        around: the attributes of the manager around each open phase, outermost first.
    """

    entered: list[dict[str, Any]] = field(default_factory=list)
    around: list[dict[str, Any]] = field(default_factory=list)
    _open: list[dict[str, Any]] = field(default_factory=list)
    _passed: int = 0  # of those entered, by this program

    @property
    def is_behind(self) -> bool:
        """Whether phases of the checkpoint are left that this program has not opened yet."""
        return self._passed < len(self.entered)

    @property
    def number(self) -> int:
        """How many phases this program has opened so far."""
        return self._passed

    def enter(self, name: str, around: dict[str, Any]) -> dict[str, Any]:
        """Take note that a phase opens, and return what is known of it.

        Raises:
            CheckpointError: the program of the checkpoint had opened another phase.
        """
        path = [*(phase["path"][-1] for phase in self._open), name]
        if not self.is_behind:
            self.entered.append({"path": path, "epoch_num": 0, "is_done": False})
        phase = self.entered[self._passed]
        if phase["path"] != path:
            raise _other_phase(path, phase["path"])
        self._passed += 1
        self._open.append(phase)
        self.around.append(around)
        return phase

    def leave(self, epoch_num: int, *, failed: bool) -> None:
        """Take note that the innermost phase ends."""
        phase = self._open.pop()
        self.around.pop()
        if not phase["is_done"]:
            phase |= {"epoch_num": epoch_num, "is_done": not failed}

    def state_dict(self) -> list[dict[str, Any]]:
        """Return the phases that were entered."""
        return [dict(phase) for phase in self.entered[: self._passed]]

    def load_state_dict(self, state: list[dict[str, Any]]) -> None:
        """Go on from what ``state_dict`` returned; phases that are open stay so."""
        open_now = [phase["path"] for phase in self._open]
        self.entered = [dict(phase) for phase in state]
        self._open = [next(p for p in reversed(self.entered[: self._passed]) if p["path"] == path) for path in open_now]


def _other_phase(opened: list[str], expected: list[str]) -> CheckpointError:
    what = f"the program opens phase {' > '.join(opened)!r}, but the checkpoint was written after"
    cure = "open the same phases in the same order; for another program take the weights alone: tm.load_weights(path)"
    return CheckpointError(f"{what} phase {' > '.join(expected)!r} was opened here", name=opened[-1], cure=cure)
