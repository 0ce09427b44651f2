"""The state of one run, or of a phase in it: what its hooks have requested, and what its evaluations have found.

Each run has an object of its own, so that nothing of a run that has failed is left in the next.
"""

from __future__ import annotations

from typing import Any, final

from train_manager.data.batch import Structures
from train_manager.loop.requests import Requests
from train_manager.loop.results import EvalResult


@final
class RunState:
    """What is requested in a run, and kept until it ends.

    Attributes:
        entry: the method that the run was entered by; None if the user holds it open.
        stop_reason: what ``stop`` was given; None if it was not called.
        stopped_by: the hook that called it, and at which stage.
        stop_at: "step" or "epoch", once ``stop`` was called.
        stops_run: not only the present phase.
        eval_requested: a hook has requested an evaluation before the next batch.
        save_requested: a hook has requested a checkpoint before the next batch.
        saves_at_end: a hook has requested a checkpoint as the training call ends.
        has_ended_epoch: an epoch was completed in it.
        structures: what the batches of each set of data are made of.
        evaluated_at: the ``step_num`` at which the loop has evaluated last.
        results: the results of the last evaluation of the present call.
        results_at: the ``step_num`` at which it was.
    """

    def __init__(self, entry: str | None, evaluated_at: int | None = None) -> None:
        self.entry = entry
        self.stop_reason: str | None = None
        self.stopped_by: str | None = None
        self.stop_at: str | None = None
        self.stops_run = False
        self.eval_requested = self.save_requested = self.saves_at_end = False
        self.has_ended_epoch = False
        self.structures = Structures()
        self.evaluated_at = evaluated_at
        self.results: dict[str, EvalResult] = {}
        self.results_at: int | None = None
        self._own_batches = 0

    def stop(self, reason: str, at: str, asked_by: str | None, whole_run: bool) -> None:
        """Request the end after this step or this epoch; a step goes before an epoch."""
        self.stop_reason, self.stopped_by = reason, asked_by
        self.stops_run = self.stops_run or whole_run
        self.stop_at = "step" if self.stop_at == "step" else at

    def go_on_after(self, other: RunState) -> None:
        """Go on as a phase begins or ends: ``other`` may have been stopped for the whole run."""
        if other.stops_run:
            self.stop_reason, self.stopped_by, self.stop_at = other.stop_reason, other.stopped_by, other.stop_at
            self.stops_run = True

    def take_over(self, requests: Requests) -> None:
        """Take over what was decided, which another process may have requested."""
        if requests.stops:
            reason = self.stop_reason or "another process has stopped"
            self.stop(reason, "step" if requests.stop else "epoch", self.stopped_by, self.stops_run)
        self.eval_requested = self.eval_requested or requests.evaluate
        self.save_requested = self.save_requested or requests.save

    def keep_results(self, results: dict[str, EvalResult], step_num: int | None) -> None:
        """Keep the results of an evaluation, and of which step they are."""
        self.results, self.results_at = results, step_num

    def number_own_batch(self, *, is_last: bool) -> int:
        """Return the number of a batch that ``train_on_batch`` was given; after the last one it begins anew."""
        number = self._own_batches + 1
        self._own_batches = 0 if is_last else number
        return number

    def number_anew(self) -> None:
        """Begin the numbers of own batches anew, as an epoch ends."""
        self._own_batches = 0

    def stop_to_come(self) -> list[Any] | None:
        """Return a stop that an epoch is still to end with; None if there is none."""
        is_to_come = self.stop_at == "epoch"
        return [self.stop_reason, self.stop_at, self.stopped_by, self.stops_run] if is_to_come else None
