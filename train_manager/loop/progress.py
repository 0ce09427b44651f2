"""Progress: how far the training has come, or a phase of it; a phase has one of its own."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping
from typing import Any, Final, final

from torch import Tensor

from train_manager.loop.books import Lifetime
from train_manager.loop.call import Call, InterruptedCall
from train_manager.loop.epoch import EpochPart, OpenEpoch, OwnEpoch
from train_manager.loop.feed import Feed
from train_manager.loop.own_losses import OwnLosses
from train_manager.loop.requests import NOTHING, Requests
from train_manager.loop.run_state import RunState
from train_manager.loop.step import NO_STEP
from train_manager.metrics.deferred import DeferredScalars, FiniteLosses
from train_manager.schedules.rules import known_call, new_call
from train_manager.telling.findings import Finding

EVALUATIONS: Final = ("eval", "eval_on_batch", "predict")
"""The methods that enter a run without training in it."""


@final
class Progress:
    """The epochs of the training or of a phase, the present run and the present call.

    Attributes:
        epoch_num: epochs completed.
        first_step: the ``step_num`` from which these are counted: 0, or that at which the phase began.
        feed: where the batches come from.
        lifetime: what the values of a ``Book`` belong to that extensions measure over the training or the phase.
        epoch: the epoch that is open, or was last.
        partial: where the row of an epoch that was left is in the history; None if none was.
        own: the epoch of a loop of the program's own, if that has trained since the last end of an epoch.
        part: the part of it that the present call trains.
        losses: of the batches since that part began or ended, looked at together.
        step: the batch that is trained on.
        run: the present or last run.
        call: the present or last training call.
        interrupted: the call that a checkpoint was written in, until the program makes it again.
        reopens: the stages that were open in that checkpoint, until they are open again.
        saved_at: what the last checkpoint was of.
        findings: what checks have found; a phase and what is around it have one list.
    """

    def __init__(
        self, run: RunState, call: Call, epoch_num: int = 0, key: str = "", findings: list[Finding] | None = None
    ) -> None:
        self.lifetime = Lifetime(key)
        self.epoch_num = epoch_num
        self.first_step = call.start_step
        self.feed = Feed()
        self.epoch = OpenEpoch(Lifetime(key))
        self.partial: int | None = None
        self.own: OwnEpoch | None = None
        self.part = EpochPart()
        self.losses = FiniteLosses(epoch_num + 1)
        self.step = NO_STEP
        self.run = run
        self.call = call
        self.interrupted: InterruptedCall | None = None
        self.reopens: set[str] = set()
        self.saved_at: tuple[int, ...] | None = None
        self.findings: list[Finding] = [] if findings is None else findings

    def __getstate__(self) -> dict[str, Any]:
        """Return what is copied or pickled; a copy feeds and counts for itself."""
        own = {name: copy.copy(getattr(self, name)) for name in ("feed", "epoch", "run", "call")}
        return {**self.__dict__, **own, "step": NO_STEP, "findings": [*self.findings]}

    # ---- a run, a call, an epoch ---------------------------------------------------------------------------------

    def begin_run(self, entry: str | None, step_num: int) -> None:
        """Begin a run; what a checkpoint has left for the next training stays if that has not begun."""
        self.run = RunState(entry, None if self.interrupted is None else self.interrupted.evaluated_at)
        self.losses, self.part = FiniteLosses(self.epoch_num + 1), EpochPart()
        if self.interrupted is None:
            self.reopens = set()
        # An evaluation leaves the number as it is, for schedules would begin anew with another one.
        self.call = Call(self.call.number if entry in EVALUATIONS else new_call(), step_num)

    def begin_call(self, entry: str, step_num: int, steps: int | None, *, evaluates: bool) -> tuple[str, ...]:
        """Begin a training call, of so many steps if they are counted; or go on with the one of a checkpoint.

        Returns:
            The names of the modules that were in eval mode there.
        """
        interrupted, self.interrupted = self.interrupted, None
        limit = None if steps is None else step_num + steps
        if interrupted is not None and interrupted.entry == entry:
            number, start_step = known_call(interrupted.number), interrupted.start_step
            if interrupted.stop is not None:
                self.run.stop(*interrupted.stop)
        else:
            number, start_step, self.reopens = new_call(), step_num, set()
        self.call, self.part = Call(number, start_step, entry, evaluates, limit), EpochPart()
        return () if interrupted is None or interrupted.entry != entry else interrupted.resting

    def meet_epoch(self, data: Iterable[Any] | None) -> None:
        """Make a new epoch of these data, unless one of them was left; an epoch of own batches is none then."""
        self.own, self.part = None, EpochPart()
        if not self.feed.goes_on_with(data):
            self.epoch = OpenEpoch(Lifetime(self.lifetime.key))

    def begin_epoch(self, data: Iterable[Any] | None, *, is_last: bool) -> None:
        """Begin the epoch that was met, or the next part of the one that was left.

        Args:
            data: what is trained on; a hook may have replaced it since.
            is_last: no epoch of the call comes after it.

        Raises:
            NonFiniteLoss: a loss of a batch before it was nan or infinite.
        """
        self.losses.check()
        if self.epoch.is_left and not self.feed.goes_on_with(data):
            self.epoch = OpenEpoch(Lifetime(self.lifetime.key))
        self.epoch.is_left = True
        self.part.is_last = is_last  # not before: a schedule would ask the data of the epoch before whether it ends
        self.losses = self.epoch.losses_of_part(self.epoch_num + 1)

    def begin_own_batch(self) -> None:
        """Begin an own epoch with the first batch of ``train_on_batch`` since the last end of one."""
        self.own = self.own or self._new_own_epoch()
        self.part.end_requested = False
        self.own.batches += 1
        self.losses = self.own.losses

    def end_own_epoch(self) -> None:
        """Make the own epoch the one that has ended last.

        Raises:
            NonFiniteLoss: a loss of one of its batches was nan or infinite.
        """
        own, self.own = self.own, None  # before a loss that is not finite is found: the error drops the epoch
        assert own is not None, "there is one"
        self.losses = FiniteLosses(self.epoch_num + 1)
        self.epoch = own.ended()

    def end_part(self, seconds: float) -> None:
        """Add the losses of the present part to its epoch.

        Raises:
            NonFiniteLoss: one was nan or infinite.
        """
        self.epoch.add(*self.losses.totals(), seconds, self.losses.by_optimizer)
        self.losses = FiniteLosses(self.epoch_num + 1)

    def count_losses(self, loss: Tensor | None, own: OwnLosses | None, step: int, examples: float) -> Tensor | None:
        """Keep the losses of a batch that was trained on.

        Args:
            loss: of the batch, if it has one.
            own: those of its updates, which are kept for their own means if ``loss`` is only their sum.
            step: the number of the batch.
            examples: its size.

        Returns:
            What is kept of ``loss``: a scalar without its graph; None if it is only a sum.

        Raises:
            NonFiniteLoss: the losses kept so far were looked at, and one was nan or infinite.
        """
        losses = self.losses
        if own is None:
            kept = None if loss is None else losses.keep(loss, step, None, examples)
        else:
            kept = _keep_with_updates(losses, loss, own, step, examples)
        if len(losses.origins) >= DeferredScalars.limit:
            losses.check()
        return kept

    # ---- findings ------------------------------------------------------------------------------------------------

    def keep_finding(self, finding: Finding) -> bool:
        """Keep what a check has found, and return whether it is new."""
        is_new = all(known.identity != finding.identity for known in self.findings)
        if is_new:
            self.findings.append(finding)
        return is_new

    # ---- lifetimes -----------------------------------------------------------------------------------------------

    def lifetime_of_epoch(self) -> Lifetime:
        """Return that of the epoch that is open, or was last."""
        return (self.epoch if self.own is None else self.own.epoch).lifetime

    @property
    def is_within_epoch(self) -> bool:
        """Whether an epoch was left before its end, or is one of the program's own, and none has ended since."""
        return self.partial is not None or self.own is not None

    def open_epochs(self) -> list[Lifetime]:
        """Return the lifetimes of the epochs that go on in the next training call."""
        epochs = [self.epoch] if self.feed.is_unfinished else []
        return [epoch.lifetime for epoch in [*epochs, *([] if self.own is None else [self.own.epoch])]]

    # ---- requests ------------------------------------------------------------------------------------------------

    def requests(self, data_ended: bool) -> Requests:
        """Return what is requested between two batches."""
        run, part = self.run, self.part
        data_ended = data_ended or part.data_has_ended
        if not (run.stop_at or data_ended or part.end_requested or run.eval_requested or run.save_requested):
            return NOTHING  # as nearly always
        return Requests(
            stop=run.stop_at == "step",
            end_epoch=part.end_requested,
            data_ended=data_ended,
            evaluate=run.eval_requested,
            stop_after_epoch=run.stop_at == "epoch",
            save=run.save_requested,
        )

    def forget_results(self, entry: str) -> None:
        """Forget those of the call before, unless they are of the coming call, as a checkpoint has brought them."""
        if self.interrupted is None or self.interrupted.entry != entry:
            self.run.keep_results({}, None)

    def forget_stop(self) -> None:
        """Forget a stop of before the checkpoint: the call that it would have ended is not made again."""
        if self.interrupted is not None:
            self.interrupted = self.interrupted._replace(stop=None)

    # ---- saved state ---------------------------------------------------------------------------------------------

    def state_dict(self, data: Iterable[Any] | None, open_stages: Iterable[str]) -> dict[str, Any]:
        """Return what the rest of the training depends on.

        Args:
            data: what is trained on.
            open_stages: those that are open at this moment.

        Raises:
            NonFiniteLoss: a loss of the open epoch was nan or infinite.
        """
        is_open = "train_step_epoch" in open_stages
        return {
            "data": self.feed.state_dict(data),
            "epoch": self.epoch.state_dict(self.losses, is_open=is_open and self.feed.is_unfinished),
            "own": None if self.own is None else self.own.state_dict(),
            "run": {
                **self._call_to_go_on(open_stages, is_open=is_open),
                "first_step": self.first_step,
                "partial": self.partial,
                "evaluated_at": self.run.evaluated_at,
                "results": self.run.results,
                "results_at": self.run.results_at,
            },
            "epoch_num": self.epoch_num,
        }

    def _call_to_go_on(self, open_stages: Iterable[str], *, is_open: bool) -> dict[str, Any]:
        """Return the call that a program will make again: the present one, or that of a checkpoint loaded before it."""
        call, interrupted = self.call, self.interrupted
        if interrupted is not None:
            entry, number, start_step, _, stop, resting = interrupted
            to_come = {"stop": stop and list(stop), **({"resting": list(resting)} if resting else {})}
            return {"call": [entry, number, start_step], "open": sorted(self.reopens), **to_come}
        stop_to_come = self.run.stop_to_come() if is_open else None  # one that has ended a call does not end the next
        return {"call": [call.entry, call.number, call.start_step], "open": list(open_stages), "stop": stop_to_come}

    def load_state_dict(self, state: Mapping[str, Any], data: Iterable[Any] | None, *, is_cut: bool) -> None:
        """Go on from what ``state_dict`` returned; an epoch of data that cannot go on begins anew.

        Args:
            state: what it returned.
            data: what is trained on.
            is_cut: ``steps_per_epoch`` cuts the epochs.
        """
        run = state["run"]
        goes_on = self.feed.load_state_dict(state["data"], data, is_cut=is_cut)
        self.epoch.load_state_dict(state["epoch"] if goes_on else {})
        self.epoch_num, self.first_step = state["epoch_num"], run["first_step"]
        self.partial = run.get("partial")
        self._load_own_epoch(state.get("own"))
        self.run.evaluated_at = run["evaluated_at"]
        self.run.keep_results(run["results"], run["results_at"])
        self.reopens = set(run["open"]) - (set() if goes_on else {"train_step_epoch"})
        entry, number, start_step = run["call"]
        stop = None if run.get("stop") is None else tuple(run["stop"])
        self.interrupted = (
            None
            if entry is None
            else InterruptedCall(entry, number, start_step, run["evaluated_at"], stop, tuple(run.get("resting", ())))
        )

    def _load_own_epoch(self, state: Mapping[str, Any] | None) -> None:
        self.own = None
        if state is not None:
            self.own = self._new_own_epoch()
            self.own.load_state_dict(state, self.epoch_num + 1)

    def _new_own_epoch(self) -> OwnEpoch:
        return OwnEpoch(f"{self.lifetime.key} own".lstrip(), self.epoch_num + 1)


def _keep_with_updates(
    losses: FiniteLosses, loss: Tensor | None, own: OwnLosses, step: int, examples: float
) -> Tensor | None:
    """Keep the loss of a batch and those of its updates, which are in means of their own if ``loss`` is their sum."""
    is_apart = own.is_shown_apart
    kept = None if loss is None or is_apart else losses.keep(loss, step, None, examples)
    for name, value in own.by_optimizer.items():
        if is_apart or value is not loss:
            losses.keep(value, step, name, examples if is_apart else 0)
    return kept
