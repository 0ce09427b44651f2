"""The extension that ends a training after a number of steps, as ``TRAIN_MANAGER_STEPS`` asks."""

from __future__ import annotations

from typing import Any, Final, final

from train_manager.core.extension import Extension
from train_manager.telling.errors import StageError

MOST_CALLS: Final = 1000  # training calls without a step, after which a program is taken to call for ever


@final
class StepLimit(Extension):
    """Stops the run after a number of steps, and each later training call before its first step.

    What the program does after its training it does as after ``tm.stop``.

    Args:
        steps: the ``step_num`` of the last step.
    """

    def __init__(self, steps: int) -> None:
        self.steps = steps
        self._calls = 0  # training calls that began with all steps done

    def pre_train(self, train_manager: Any, step_num: int) -> None:
        if step_num >= self.steps:
            self._calls += 1
            self._stop(train_manager)
        # As `while tm.epoch_num < 10: tm.train_epoch()` would: no epoch ends any more.
        if self._calls > MOST_CALLS:
            what = f"all {self.steps} steps are done, and the program has called for more {MOST_CALLS} times"
            raise StageError(what, name="train", cure="let its loop end if tm.stop_reason is set")

    def post_train_step_batch(self, train_manager: Any, step_num: int) -> None:
        if step_num >= self.steps:
            self._stop(train_manager)

    def _stop(self, train_manager: Any) -> None:
        train_manager.stop(f"the {self.steps} steps of TRAIN_MANAGER_STEPS are done", whole_run=True)
