"""The state of one run, or of a phase in it: the requests of its hooks, and the results of its evaluations.

Each run has an object of its own, so that nothing of a run that has failed is left in the next run.
"""

from __future__ import annotations

from typing import Any, final

from train_manager.data.batch import Structures
from train_manager.loop.requests import NOTHING, Requests
from train_manager.reporting.results import EvalResult


@final
class RunState:
    """Hold the requests and the last results of one run, until it ends."""

    def __init__(self, entry: str | None, evaluated_at: int | None = None) -> None:
        self.entry = entry  # the method that has opened the run; None if the program holds it open
        # Of hooks, until the loop has followed them; a stop stays, also as the reason that the run was stopped.
        self.requests = NOTHING
        self.saves_at_end = False  # a checkpoint is asked for as the training call ends
        self.is_ending = False  # the body of the run is over: only its post hooks are left
        self.has_ended_epoch = False  # an epoch was completed in this run
        self.structures = Structures()  # for each set of data: what its batches are made of
        self.evaluated_at = evaluated_at  # the step_num at which the loop has evaluated last
        self.saved_at: int | None = None  # the step_num at which a hook has saved a checkpoint last
        # The results of the last evaluation in the present training call, and the step_num of this evaluation.
        self.results: dict[str, EvalResult] = {}
        self.results_at: int | None = None
        self.first_step: int | None = None  # the step_num as its body began, after the load of a checkpoint
        self.restored_at: int | None = None  # the step_num of the weights that a hook has put back as the run ended
        self.end_is_told = False  # Log has printed how the run ended and how to resume, so no error need say so

    def stop(self, reason: str, at: str, asked_by: str | None, whole_run: bool) -> None:
        """Request the end after this step or this epoch; after a request for this step the epoch is not waited for."""
        asked = Requests(stop=at == "step", stop_after_epoch=at == "epoch", stopped=(reason, asked_by, whole_run))
        self.requests = asked.joined(self.requests)  # in this order: the last reason counts

    @property
    def stop_reason(self) -> str | None:
        """The reason that ``stop`` was given; None if nothing has stopped the run."""
        stopped = self.requests.stopped
        return stopped[0] if stopped else "another process has stopped" if self.requests.stops else None

    @property
    def stopped_by(self) -> str | None:
        """The hook that has called ``stop``, and where."""
        return None if self.requests.stopped is None else self.requests.stopped[1]

    @property
    def stops_run(self) -> bool:
        """Whether the whole run was stopped, not only the present phase."""
        return self.requests.stopped is not None and self.requests.stopped[2]

    def go_on_after(self, other: RunState) -> None:
        """Take over a stop of the whole run, and the last checkpoint, from ``other``, as a phase begins or ends."""
        self.saved_at = self.saved_at if other.saved_at is None else other.saved_at
        if other.stops_run:
            self.requests = other.requests.stop_alone.joined(self.requests)

    def has_trained(self, step_num: int) -> bool:
        """Return whether a batch was trained on in this run, by the number of those trained on in all."""
        return self.first_step is not None and step_num > self.first_step

    def keep_results(self, results: dict[str, EvalResult], step_num: int | None) -> None:
        """Keep the results of an evaluation, and of which step they are."""
        self.results, self.results_at = results, step_num

    def stop_to_come(self) -> list[Any] | None:
        """Return the arguments of a ``stop(at="epoch")`` whose epoch has not ended yet; None if there is none."""
        if not self.requests.stop_after_epoch:
            return None
        return [self.stop_reason, "epoch", self.stopped_by, self.stops_run]
