"""The state of one run, or of a phase in it: the requests of its hooks, and the results of its evaluations.

Each run has an object of its own, so that nothing of a run that has failed is left in the next run.
"""

from __future__ import annotations

from typing import Any, final

from train_manager.data.batch import Structures
from train_manager.loop.requests import Requests
from train_manager.reporting.results import EvalResult


@final
class RunState:
    """Hold the requests and the last results of one run, until it ends."""

    def __init__(self, entry: str | None, evaluated_at: int | None = None) -> None:
        self.entry = entry  # the method that has opened the run; None if the program holds it open
        # Set by `stop`: its reason, the hook that called it and where, and "step" or "epoch".
        self.stop_reason: str | None = None
        self.stopped_by: str | None = None
        self.stop_at: str | None = None
        self.stops_run = False  # the stop ends the whole run, not only the present phase
        # Requests of hooks: an evaluation and a checkpoint before the next batch, a checkpoint as the call ends.
        self.eval_requested = self.save_requested = self.saves_at_end = False
        self.is_ending = False  # the body of the run is over: only its post hooks are left
        self.has_ended_epoch = False  # an epoch was completed in this run
        self.structures = Structures()  # for each set of data: what its batches are made of
        self.evaluated_at = evaluated_at  # the step_num at which the loop has evaluated last
        self.saved_at: int | None = None  # the step_num at which a hook has saved a checkpoint last
        # The results of the last evaluation in the present training call, and the step_num of this evaluation.
        self.results: dict[str, EvalResult] = {}
        self.results_at: int | None = None

    def stop(self, reason: str, at: str, asked_by: str | None, whole_run: bool) -> None:
        """Request the end after this step or this epoch; after a request for this step the epoch is not waited for."""
        self.stop_reason, self.stopped_by = reason, asked_by
        self.stops_run = self.stops_run or whole_run
        self.stop_at = "step" if self.stop_at == "step" else at

    def go_on_after(self, other: RunState) -> None:
        """Take over a stop of the whole run, and the last checkpoint, from ``other``, as a phase begins or ends."""
        self.saved_at = self.saved_at if other.saved_at is None else other.saved_at
        if other.stops_run:
            self.stop_reason, self.stopped_by, self.stop_at = other.stop_reason, other.stopped_by, other.stop_at
            self.stops_run = True

    def take_over(self, requests: Requests) -> None:
        """Take over the requests of a decision, which may come from another process."""
        if requests.stops:
            own = self.stop_reason or "another process has stopped", self.stopped_by, self.stops_run
            reason, asked_by, whole_run = requests.stopped or own
            self.stop(reason, "step" if requests.stop else "epoch", asked_by, whole_run)
        self.eval_requested = self.eval_requested or requests.evaluate
        self.save_requested = self.save_requested or requests.save

    def keep_results(self, results: dict[str, EvalResult], step_num: int | None) -> None:
        """Keep the results of an evaluation, and of which step they are."""
        self.results, self.results_at = results, step_num

    def stop_to_come(self) -> list[Any] | None:
        """Return the arguments of a ``stop(at="epoch")`` whose epoch has not ended yet; None if there is none."""
        is_to_come = self.stop_at == "epoch"
        return [self.stop_reason, self.stop_at, self.stopped_by, self.stops_run] if is_to_come else None
