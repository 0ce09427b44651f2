"""Stops a training by an error at a step, and lets new objects resume from its checkpoint."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.resume.trainings import Training
from tests.support.resuming import differences as differences
from tests.support.resuming import state_of
from train_manager import Extension, TrainManager, every
from train_manager.extensions import Checkpoints

HERE = ("checkpoints", "fails_at", "at")  # extensions that only some of the compared trainings have


class FailsAt(Extension):
    """Fail before a step, or right after it."""

    def __init__(self, step: int, hook: str = "pre_train_step_batch") -> None:
        self.step = step
        vars(self)[hook] = self.fail

    def fail(self, step_num: int) -> None:
        if step_num == self.step:
            raise OnPurposeError


class OnPurposeError(Exception):
    """What is raised in place of a power failure."""


def whole(training: Training) -> dict[str, Any]:
    """The end of a training that was never interrupted, and saved nothing."""
    tm = training.make()
    training.program(tm)
    return end_of(tm)


def end_of(tm: TrainManager) -> dict[str, Any]:
    """The state of a training without what tests have added."""
    state = state_of(tm)
    extensions = {name: one for name, one in state["extensions"].items() if name not in HERE}
    run = {name: one for name, one in state["run"].items() if name != "losses"}  # of what is over
    # The models of completed phases are kept in trainings alone that save.
    program = [{name: one for name, one in event.items() if name != "modules"} for event in state["program"]]
    found = {**state, "extensions": extensions, "run": run, "program": program}
    return {name: part for name, part in found.items() if name != "parameters"}  # which have the folder in them


def saved_every_step(**options: Any) -> Checkpoints:
    return Checkpoints(**{"save_at": every(1), **options})


def stopped_and_resumed(
    training: Training,
    folder: Path,
    at: int,
    hook: str = "pre_train_step_batch",
    then: Training | None = None,
    **options: Any,
) -> TrainManager:
    """Fail at a step, then resume from the last checkpoint, in new objects, to the end."""
    first = training.make(saved_every_step(**options), FailsAt(at, hook), train_dir=folder)
    try:
        training.program(first)
    except OnPurposeError:
        pass
    else:
        raise AssertionError(f"the training has no step {at}")
    training = training if then is None else then
    second = training.make(saved_every_step(resume=True, **options), train_dir=folder)
    training.program(second)
    return second
