"""The state of one run: what was asked of it, how far it has come, what it keeps until it ends.

Each run has an object of its own, so that nothing of a run that has failed is left in the next.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, final

from torch import Tensor

from train_manager.data.batch import Structures
from train_manager.loop.results import EvalResult
from train_manager.metrics.deferred import FiniteLosses
from train_manager.schedules.rules import Progress, new_call


@final
@dataclass
class Counts:
    """What a TrainManager has done in all its runs; apart from it, for its own attributes are looked at when set."""

    epoch_num: int = 0
    step_num: int = 0
    update_num: int = 0
    samples_seen: Any = 0  # a tensor if the true batch sizes are tensors


@final
class RunState:
    """What a run asks, counts and keeps.

    Attributes:
        entry: the method that the run was entered by; None if the user holds it open.
        start_step: ``step_num`` as the present or last training call began.
        end_step: what ``step_num`` will be as it ends; None while that is unknown.
        step_limit: the ``step_num`` at which ``train_steps`` ends.
        stop_reason: what ``stop`` was given; None if it was not called.
        stopped_by: the hook that called it, and at which stage.
        stop_at: "step" or "epoch", once ``stop`` was called.
        eval_requested: a hook has asked for an evaluation before the next batch.
        epoch_end_requested: ``end_epoch`` was called since the epoch began.
        batch_is_alive: a batch is being trained on, and not counted yet.
        has_gradients: it has left gradients behind.
        losses: the losses of the epoch, looked at together.
        structures: what the batches of each set of data are made of.
        results: the results of the last evaluation.
    """

    def __init__(self, entry: str | None, step_num: int, epoch_num: int, call: int) -> None:
        self.entry = entry
        self.start_step = step_num
        self.end_step: int | None = None
        self.step_limit: int | None = None
        self.stop_reason: str | None = None
        self.stopped_by: str | None = None
        self.stop_at: str | None = None
        self.eval_requested = self.epoch_end_requested = False
        self.batch_is_alive = self.has_gradients = False
        self.losses = FiniteLosses(epoch_num + 1)
        self.structures = Structures()
        self.results: dict[str, EvalResult] = {}
        self.call = call

    def begin_call(self, step_num: int, steps: int | None) -> None:
        """Take note that a training call begins, of so many steps if they are counted."""
        self.call = new_call()
        self.start_step = step_num
        self.step_limit = None if steps is None else step_num + steps

    def begin_epoch(self, epoch: int) -> None:
        """Keep the losses of an epoch, counted from 1; those of batches trained on before it are looked at."""
        self.losses.check()
        self.losses = FiniteLosses(epoch)
        self.epoch_end_requested = False

    def stop(self, reason: str, at: str, asked_by: str | None) -> None:
        """Ask for the end after this step or this epoch; a step goes before an epoch."""
        self.stop_reason, self.stopped_by = reason, asked_by
        self.stop_at = "step" if self.stop_at == "step" else at

    def count(self, loss: Tensor, step: int) -> None:
        """Take note that a batch was trained on.

        Raises:
            NonFiniteLoss: the losses kept so far were looked at, and one was nan or infinite.
        """
        self.losses.last_step = step
        if self.losses.append(loss):
            self.losses.check()
        self.batch_is_alive = self.has_gradients = False

    def progress(self, step_num: int) -> Progress:
        """Return how far the present or last training call has come."""
        done = step_num + self.batch_is_alive
        total = None if self.end_step is None else self.end_step - self.start_step
        return Progress(self.call, done - self.start_step, total, self.stop_at == "step" or done == self.end_step)
