"""The state of one run: what was requested in it, how far it has come, what it keeps until it ends.

Each run has an object of its own, so that nothing of a run that has failed is left in the next.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, final

from torch import Tensor

from train_manager.data.batch import Structures
from train_manager.loop.requests import NOTHING, Requests
from train_manager.loop.results import EvalResult
from train_manager.metrics.deferred import FiniteLosses
from train_manager.schedules.rules import known_call, new_call


@final
@dataclass
class Counts:
    """What a TrainManager has done in all its runs; apart from it, for its own attributes are looked at when set."""

    epoch_num: int = 0
    step_num: int = 0
    update_num: int = 0
    samples_seen: Any = 0  # a tensor if the batch sizes are tensors
    optimizer_updates: dict[str, int] = field(default_factory=dict)

    def count_update(self, optimizer_name: str) -> None:
        """Count a step of an optimizer."""
        self.update_num += 1
        self.optimizer_updates[optimizer_name] = self.optimizer_updates.get(optimizer_name, 0) + 1


@final
class RunState:
    """What a run requests, counts and keeps.

    Attributes:
        entry: the method that the run was entered by; None if the user holds it open.
        call: the number of the present or last training call.
        start_step: ``step_num`` as that call began.
        first_step: the ``step_num`` from which epochs are counted: 0, or that at which a phase began.
        end_step: what ``step_num`` will be as it ends; None while that is unknown.
        expected_end: the same, where the length of the coming epochs is guessed from that of the last one.
        step_limit: the ``step_num`` at which ``train_steps`` ends.
        is_last_epoch: no epoch of the call comes after the present one.
        stop_reason: what ``stop`` was given; None if it was not called.
        stopped_by: the hook that called it, and at which stage.
        stop_at: "step" or "epoch", once ``stop`` was called.
        stops_run: not only the present phase.
        stop_to_load: what was given to ``stop`` before the checkpoint, until its call is made again.
        eval_requested: a hook has requested an evaluation before the next batch.
        epoch_end_requested: ``end_epoch`` was called since the epoch began.
        save_requested: a hook has requested a checkpoint before the next batch.
        saves_at_end: a hook has requested a checkpoint as the training call ends.
        saved_at: what the last checkpoint of the run was of.
        data_has_ended: the point of decision has ended the epoch's data during a batch.
        evaluated_at: the ``step_num`` at which the loop has evaluated last.
        call_entry: the method that made the present or last training call.
        goes_on: a call that a checkpoint was written in, its entry, number and ``start_step``, until it is made again.
        resumed: the stages that were open when the checkpoint was written, until they are opened again.
        is_done: of a phase that was completed before the checkpoint, so that nothing is trained in it.
        counts_before: the epochs, steps and updates as that call began.
        epochs_asked: how many epochs the present or last training call was asked for.
        evaluates: the present call evaluates when ``eval_at`` says so.
        losses: the losses of the epoch, looked at together.
        structures: what the batches of each set of data are made of.
        results: the results of the last evaluation.
        results_at: the ``step_num`` at which it was.
    """

    def __init__(self, entry: str | None, step_num: int, epoch_num: int, call: int) -> None:
        self.entry = entry
        self.call = call
        self.first_step = 0
        self.start_step = step_num
        self.end_step: int | None = None
        self.expected_end: int | None = None
        self.step_limit: int | None = None
        self.is_last_epoch = False
        self.stop_reason: str | None = None
        self.stopped_by: str | None = None
        self.stop_at: str | None = None
        self.stops_run = False
        self.stop_to_load: tuple[str, str, str | None, bool] | None = None
        self.eval_requested = self.epoch_end_requested = self.data_has_ended = False
        self.save_requested = self.saves_at_end = False
        self.saved_at: tuple[int, ...] | None = None
        self.evaluated_at: int | None = None
        self.call_entry: str | None = None
        self.goes_on: tuple[str, int, int] | None = None
        self.resumed: set[str] = set()
        self.is_done = False
        self.counts_before = epoch_num, step_num, 0
        self.epochs_asked: int | None = None
        self.evaluates = False
        self._own_batches = 0
        self.losses = FiniteLosses(epoch_num + 1)
        self.structures = Structures()
        self.results: dict[str, EvalResult] = {}
        self.results_at: int | None = None

    # ---- requests ------------------------------------------------------------------------------------------------

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

    def requests(self, data_ended: bool) -> Requests:
        """Return what is requested between two batches."""
        data_ended = data_ended or self.data_has_ended
        if not (self.stop_at or data_ended or self.epoch_end_requested or self.eval_requested or self.save_requested):
            return NOTHING  # as nearly always
        return Requests(
            stop=self.stop_at == "step",
            end_epoch=self.epoch_end_requested,
            data_ended=data_ended,
            evaluate=self.eval_requested,
            stop_after_epoch=self.stop_at == "epoch",
            save=self.save_requested,
        )

    def take_over(self, requests: Requests) -> None:
        """Take over what was decided, which another process may have requested."""
        if requests.stops:
            reason = self.stop_reason or "another process has stopped"
            self.stop(reason, "step" if requests.stop else "epoch", self.stopped_by, self.stops_run)
        self.eval_requested = self.eval_requested or requests.evaluate
        self.save_requested = self.save_requested or requests.save

    def go_on_from(self, before: RunState) -> None:
        """Take over what was saved, and what a checkpoint has left for the next training, if that has not begun."""
        self.saved_at = before.saved_at
        if before.goes_on is not None:
            self.goes_on, self.resumed, self.evaluated_at = before.goes_on, before.resumed, before.evaluated_at
            self.stop_to_load = before.stop_to_load

    # ---- how far a call has come ---------------------------------------------------------------------------------

    def begin_call(self, step_num: int, steps: int | None) -> None:
        """Take note that a training call begins, of so many steps if they are counted."""
        goes_on, self.goes_on = self.goes_on, None
        stop, self.stop_to_load = self.stop_to_load, None
        if goes_on is not None and goes_on[0] == self.call_entry:
            self.call, self.start_step = known_call(goes_on[1]), goes_on[2]
            if stop is not None:
                self.stop(*stop)
        else:
            self.call, self.start_step, self.resumed = new_call(), step_num, set()
        self.step_limit = None if steps is None else step_num + steps
        self.expected_end = None
        self.is_last_epoch = False

    def begin_epoch(self, epoch: int, part: tuple[float, float], *, is_last: bool) -> None:
        """Keep the losses of an epoch, counted from 1; those of batches trained on before it are looked at.

        Args:
            epoch: its number.
            part: the sum of losses and the number of examples that it goes on from.
            is_last: no epoch of the call comes after it.
        """
        self.losses.check()
        self.losses = FiniteLosses(epoch)
        self.losses.total, self.losses.examples = part
        self.is_last_epoch, self.data_has_ended = is_last, False

    def number_own_batch(self, *, is_last: bool) -> int:
        """Return the number of a batch that ``train_on_batch`` was given; after the last one it begins anew."""
        number = self._own_batches + 1
        self._own_batches = 0 if is_last else number
        return number

    def keep_results(self, results: dict[str, EvalResult], step_num: int | None) -> None:
        """Keep the results of an evaluation, and of which step they are."""
        self.results, self.results_at = results, step_num

    def forget_results(self, entry: str) -> None:
        """Forget those of the call before, unless they are of the coming call, as a checkpoint has brought them."""
        if self.goes_on is None or self.goes_on[0] != entry:
            self.keep_results({}, None)

    def count(self, loss: Tensor | None, update_losses: Mapping[str, Tensor], step: int, examples: float) -> None:
        """Keep the losses of a batch that was trained on.

        Args:
            loss: of the forward pass, or None; then the loss of the batch is the sum of its updates.
            update_losses: those of its updates, by optimizer.
            step: the number of the batch.
            examples: its size.

        Raises:
            NonFiniteLoss: the losses kept so far were looked at, and one was nan or infinite.
        """
        is_full = False
        if loss is not None:
            is_full = self.losses.append(loss, step, None, examples)
        for name, value in update_losses.items():
            is_full = self.losses.append(value, step, name, examples if loss is None else 0)
        if is_full:
            self.losses.check()

    # ---- saved state ---------------------------------------------------------------------------------------------

    def state_dict(self, open_stages: Iterable[str]) -> dict[str, Any]:
        """Return what the rest of the run depends on; ``open_stages`` are those that are open at this moment."""
        return {
            "call": [self.call_entry, self.call, self.start_step],
            "open": list(open_stages),
            "stop": self._stop_to_come(open_stages),
            "first_step": self.first_step,
            "evaluated_at": self.evaluated_at,
            "results": self.results,
            "results_at": self.results_at,
        }

    def _stop_to_come(self, open_stages: Iterable[str]) -> list[Any] | None:
        """Return a stop that an epoch is still to end with; one that has ended a call does not end the next one."""
        is_to_come = self.stop_at == "epoch" and "train_step_epoch" in open_stages
        return [self.stop_reason, self.stop_at, self.stopped_by, self.stops_run] if is_to_come else None

    def load_state_dict(self, state: Mapping[str, Any], *, epoch_goes_on: bool) -> None:
        """Go on from what ``state_dict`` returned."""
        entry, call, start_step = state["call"]
        self.goes_on = None if entry is None else (entry, call, start_step)
        self.stop_to_load = None if state.get("stop") is None else tuple(state["stop"])
        self.first_step, self.evaluated_at = state["first_step"], state["evaluated_at"]
        self.keep_results(state["results"], state["results_at"])
        self.resumed = set(state["open"]) - (set() if epoch_goes_on else {"train_step_epoch"})
