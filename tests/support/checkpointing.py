"""What the tests of checkpoints share: trainings that are interrupted, and what they leave in their folder."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.support.training import At
from train_manager import (
    Extension,
)
from train_manager.checkpoints.checkpoint_names import step_of
from train_manager.testing import tiny_manager


def steps_in(train_dir: Path) -> list[int]:
    """Return the steps of the checkpoints, oldest first; an epoch of the tiny manager has 3."""
    return sorted(step_of(path) for path in (train_dir / "checkpoints").glob("step-*"))


def path_of(train_dir: Path, step: int) -> Path:
    return train_dir / "checkpoints" / f"step-{step:012}"


def losses(*values: float) -> Extension:
    """Return an extension that gives the evaluations of a training these losses, in turn."""
    left = list(values)
    return At("post_eval_step_epoch", lambda eval_result: eval_result.update(loss=left.pop(0)))


class Fails(Extension):
    def __init__(self, step: int) -> None:
        self.step = step

    def pre_train_step_batch(self, step_num: int) -> None:
        if step_num == self.step:
            raise ZeroDivisionError("as planned")


def interrupted(train_dir: Path, step: int, *extensions: Extension, **options: Any) -> None:
    """Train until a hook fails after so many steps."""
    with pytest.raises(ZeroDivisionError):
        tiny_manager(*extensions, Fails(step), train_dir=train_dir, **options).train()
