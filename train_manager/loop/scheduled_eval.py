"""The extension that evaluates within epochs, for the schedules of ``eval_at``."""

from __future__ import annotations

from typing import Any, final

from train_manager.core.extension import Extension
from train_manager.core.schedule import Schedule
from train_manager.schedules import scheduled


@final
class EvalAt(Extension):
    """Requests an evaluation whenever its hook runs, in training calls that evaluate."""

    def post_train_step_batch(self, train_manager: Any) -> None:
        progress = train_manager._progress
        # Not in train_epoch, nor for batches of train_on_batch: a loop of the program's own evaluates by itself.
        if progress.call.evaluates and not progress.step.is_own:
            train_manager.eval_soon()


def scheduled_eval(schedule: Schedule) -> Extension:
    """Return an extension that requests an evaluation after the batches that a schedule says."""
    return scheduled(EvalAt(), "post_train_step_batch", schedule)
