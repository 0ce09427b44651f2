"""Progress: how far the training has come, or a phase of it; a phase has one of its own."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, final

from torch import Tensor

from train_manager.loop.books import Lifetime
from train_manager.loop.call import Call, InterruptedCall
from train_manager.loop.epoch import EpochPart, OpenEpoch, OwnEpoch, add_epochs
from train_manager.loop.feed import Feed
from train_manager.loop.own_losses import OwnLosses
from train_manager.loop.ranks import ONE_PROCESS, Ranks, state_for_rank, state_of_ranks
from train_manager.loop.requests import NOTHING, Requests
from train_manager.loop.run_state import RunState
from train_manager.loop.step import NO_STEP
from train_manager.metrics.deferred import DeferredScalars, FiniteLosses
from train_manager.schedules.rules import new_call, reserve_call_number
from train_manager.telling.findings import Finding

EVALUATIONS: Final = ("eval", "eval_on_batch", "predict")
"""The methods that enter a run without training in it."""


@final
class Progress:
    """The epochs of the training or of a phase, the present run and the present training call."""

    def __init__(
        self, run: RunState, call: Call, epoch_num: int = 0, key: str = "", findings: list[Finding] | None = None
    ) -> None:
        # Values of a Book that extensions measure over the training or the phase belong to this object.
        self.lifetime = Lifetime(key)
        self.epoch_num = epoch_num  # epochs completed
        self.first_step = call.start_step  # step_num as the training (0) or the phase began
        self.feed = Feed()  # gives the batches
        self.epoch = OpenEpoch(Lifetime(key))  # the epoch that is open, or was open last
        self.partial: int | None = None  # where history.epochs has the row of an epoch that was left unfinished
        # The epoch of a loop of the program's own, from its first train_on_batch until end_epoch.
        self.own: OwnEpoch | None = None
        self.epoch_part = EpochPart()  # the part of the epoch that the present training call trains
        # The losses of the batches since this part began, or since the last part ended; looked at together.
        self.losses = FiniteLosses(epoch_num + 1)
        self.step = NO_STEP  # the batch that is trained on
        self.run = run  # the present or last run
        self.call = call  # the present or last training call
        # The training call that the loaded checkpoint was written in, until the program makes this call again; and the
        # stages that were open then, until each of them is open again.
        self.interrupted: InterruptedCall | None = None
        self.reopens: set[str] = set()
        # TrainManager._place_of_checkpoint() at the last save or load: there a further checkpoint has nothing new.
        self.saved_at: tuple[int, ...] | None = None
        # The findings of checks; a phase shares the list of the training around it.
        self.findings: list[Finding] = [] if findings is None else findings

    def __getstate__(self) -> dict[str, Any]:
        """Return what is copied or pickled; a copy feeds and counts for itself."""
        own = {name: copy.copy(getattr(self, name)) for name in ("feed", "epoch", "run", "call")}
        return {**self.__dict__, **own, "step": NO_STEP, "findings": [*self.findings]}

    # ---- a run, a call, an epoch ---------------------------------------------------------------------------------

    def begin_run(self, entry: str | None, step_num: int) -> None:
        """Begin a run. The interrupted call of a checkpoint stays until a training call begins."""
        self.run = RunState(entry, None if self.interrupted is None else self.interrupted.evaluated_at)
        self.losses, self.epoch_part = FiniteLosses(self.epoch_num + 1), EpochPart()
        if self.interrupted is None:
            self.reopens = set()
        # Schedules begin anew as the number of the call changes, which they must not do at a tm.eval() in between.
        self.call = Call(self.call.number if entry in EVALUATIONS else new_call(), step_num)

    def begin_call(self, entry: str, step_num: int, steps: int | None, *, evaluates: bool) -> Sequence[str]:
        """Begin a training call, of so many steps if they are counted; or continue with the one of a checkpoint.

        Returns:
            The names of the modules that were in eval mode there.
        """
        interrupted, self.interrupted = self.interrupted, None
        limit = None if steps is None else step_num + steps
        if interrupted is not None and interrupted.entry == entry:
            # The number that the call had in the program before: saved schedules know their place in this call.
            number, start_step = reserve_call_number(interrupted.number), interrupted.start_step
            self.run.eval_requested = self.run.eval_requested or interrupted.eval_requested
            if interrupted.stop is not None:
                self.run.stop(*interrupted.stop)
        else:
            number, start_step, self.reopens = new_call(), step_num, set()
        self.call, self.epoch_part = Call(number, start_step, entry, evaluates, limit), EpochPart()
        return () if interrupted is None or interrupted.entry != entry else interrupted.resting

    def meet_epoch(self, data: Iterable[Any] | None) -> None:
        """Make a new epoch of these data, unless an epoch of them was left unfinished; an own epoch is dropped."""
        self.own, self.epoch_part = None, EpochPart()
        if not self.feed.goes_on_with(data):
            self.epoch = OpenEpoch(Lifetime(self.lifetime.key))

    def begin_epoch(self, data: Iterable[Any] | None, *, is_last: bool) -> None:
        """Begin the epoch that ``meet_epoch`` has made, or the next part of the epoch that was left unfinished.

        Args:
            data: the training data.
            is_last: no epoch of the training call comes after this one.

        Raises:
            NonFiniteLoss: a loss of a batch before the epoch was nan or infinite.
        """
        self.losses.check()
        # A pre hook of the epoch has replaced the data since meet_epoch: the unfinished epoch of the former data ends.
        if self.epoch.is_left and not self.feed.goes_on_with(data):
            self.epoch = OpenEpoch(Lifetime(self.lifetime.key))
        self.epoch.is_left = True
        # Only now: at the start of the stage, a schedule would have asked the former epoch's feed whether it ends.
        self.epoch_part.is_last = is_last
        self.losses = self.epoch.losses_of_part(self.epoch_num + 1)

    def begin_own_batch(self, examples: int | None, *, is_last: bool) -> int:
        """Count a batch of ``train_on_batch`` to the own epoch, which its first batch begins; return its number.

        Args:
            examples: how many of them this process has; None if it trains alone.
            is_last: whether an epoch of the program's own ends with this batch.
        """
        self.own = self.own or self._new_own_epoch()
        self.epoch_part.end_requested = False
        self.losses = self.own.losses
        return self.own.begin_batch(examples, is_last=is_last)

    def end_own_epoch(self) -> None:
        """End the own epoch: it becomes the epoch that was open last.

        Raises:
            NonFiniteLoss: a loss of one of its batches was nan or infinite.
        """
        own, self.own = self.own, None  # before end(), whose NonFiniteLoss must leave no own epoch behind
        assert own is not None, "end_epoch() has checked that own batches were trained on"
        self.losses = FiniteLosses(self.epoch_num + 1)
        self.epoch = own.end()

    def end_epoch_part(self, seconds: float) -> None:
        """Add the losses of the present part to its epoch.

        Raises:
            NonFiniteLoss: one was nan or infinite.
        """
        self.epoch.add(*self.losses.totals(), seconds, self.losses.by_optimizer)
        self.losses = FiniteLosses(self.epoch_num + 1)

    def count_losses(self, loss: Tensor | None, own: OwnLosses | None, step: int, examples: float) -> Tensor | None:
        """Keep the losses of a batch that was trained on.

        Args:
            loss: the loss of the batch, if it has one.
            own: the losses of its updates, which are kept for means of their own if ``loss`` is only their sum.
            step: the number of the batch.
            examples: the number of its examples.

        Returns:
            The scalar that is kept of ``loss``, without its graph; None if ``loss`` is only a sum.

        Raises:
            NonFiniteLoss: the losses kept so far were looked at, and one was nan or infinite.
        """
        losses = self.losses
        if own is None:
            kept = None if loss is None else losses.keep(loss, step, None, examples)
        else:
            kept = _keep_with_updates(losses, loss, own, step, examples)
        if len(losses.origins) >= DeferredScalars.limit:  # so many scalars wait on the device, unread
            losses.check()
        return kept

    def count_skipped(self) -> None:
        """Count a batch that a hook has skipped to its epoch."""
        (self.epoch if self.own is None else self.own.epoch).skipped += 1

    # ---- findings ------------------------------------------------------------------------------------------------

    def keep_finding(self, finding: Finding) -> bool:
        """Keep a finding of a check, and return whether it is new."""
        is_new = all(known.identity != finding.identity for known in self.findings)
        if is_new:
            self.findings.append(finding)
        return is_new

    def findings_as_dicts(self) -> list[dict[str, Any]]:
        """Return all findings, as a checkpoint has them."""
        return [finding.to_dict() for finding in self.findings]

    def keep_findings(self, saved: Iterable[Mapping[str, Any]]) -> None:
        """Keep what ``findings_as_dicts`` returned beside the findings that are here."""
        for finding in saved:
            self.keep_finding(Finding.from_dict(finding))

    # ---- lifetimes -----------------------------------------------------------------------------------------------

    def lifetime_of_epoch(self) -> Lifetime:
        """Return the lifetime of the epoch that is open, or was open last."""
        return (self.epoch if self.own is None else self.own.epoch).lifetime

    @property
    def is_within_epoch(self) -> bool:
        """Whether an epoch has begun and not ended: it was left before its end, or is an own epoch."""
        return self.partial is not None or self.own is not None

    def open_epochs(self) -> list[Lifetime]:
        """Return the lifetimes of the epochs that continue in the next training call."""
        epochs = [self.epoch] if self.feed.is_unfinished else []
        return [epoch.lifetime for epoch in [*epochs, *([] if self.own is None else [self.own.epoch])]]

    # ---- requests ------------------------------------------------------------------------------------------------

    def requests(self, data_ended: bool) -> Requests:
        """Return the requests between two batches."""
        run, epoch_part = self.run, self.epoch_part
        data_ended = data_ended or epoch_part.data_has_ended
        # The usual step, without making a tuple; the loop compares by `is NOTHING`.
        if not (run.stop_at or data_ended or epoch_part.end_requested or run.eval_requested or run.save_requested):
            return NOTHING
        return Requests(
            stop=run.stop_at == "step",
            end_epoch=epoch_part.end_requested,
            data_ended=data_ended,
            evaluate=run.eval_requested,
            stop_after_epoch=run.stop_at == "epoch",
            save=run.save_requested,
            stopped=(run.stop_reason or "", run.stopped_by, run.stops_run) if run.stop_at else None,
        )

    def forget_results(self, entry: str) -> None:
        """Forget the results of the last training call."""
        # A checkpoint has brought results of the coming call itself, of which it trains the rest: these stay.
        if self.interrupted is None or self.interrupted.entry != entry:
            self.run.keep_results({}, None)

    def forget_stop(self) -> None:
        """Forget a ``stop(at="epoch")`` that a checkpoint has brought: the call that it would end is not made again."""
        if self.interrupted is not None:
            self.interrupted = self.interrupted._replace(stop=None)

    # ---- saved state ---------------------------------------------------------------------------------------------

    def state_dict(
        self,
        data: Iterable[Any] | None,
        open_stages: Sequence[str],
        resting: Sequence[str] = (),
        ranks: Ranks = ONE_PROCESS,
    ) -> dict[str, Any]:
        """Return the state that the rest of the training depends on.

        Args:
            data: the training data.
            open_stages: the stages that are open at this moment.
            resting: the submodules of the model that a hook has set to eval mode.
            ranks: the processes that train together, whose sums are added.

        Raises:
            NonFiniteLoss: a loss of the open epoch was nan or infinite.
        """
        is_open = "train_step_epoch" in open_stages
        epoch = self.epoch.state_dict(self.losses, is_open=is_open and self.feed.is_unfinished)
        return {
            "data": self.feed.state_dict(data),
            "epoch": state_of_ranks(ranks, epoch, add_epochs),
            "own": None if self.own is None else self.own.state_dict(ranks),
            "run": {
                "call": self._call_to_go_on(open_stages, resting, is_open=is_open)._asdict(),
                "first_step": self.first_step,
                "partial": self.partial,
                "results": self.run.results,
                "results_at": self.run.results_at,
            },
            "epoch_num": self.epoch_num,
        }

    def _call_to_go_on(self, open_stages: Sequence[str], resting: Sequence[str], *, is_open: bool) -> InterruptedCall:
        """Return the training call that a program will make again that resumes from here."""
        call, run = self.call, self.run
        if self.interrupted is not None:
            # A checkpoint was loaded, and its call was not made again yet: the program to come has to make it too.
            return self.interrupted._replace(open=sorted(self.reopens), evaluated_at=run.evaluated_at)
        stop = run.stop_to_come() if is_open else None  # a stop that has ended its call is done
        # Where a call ends within an epoch, the checkpoint is written before an evaluation that its last step asks for.
        place = call.entry, call.number, call.start_step, run.evaluated_at
        return InterruptedCall(*place, [*open_stages], stop, [*resting], run.eval_requested)

    def load_state_dict(
        self, state: Mapping[str, Any], data: Iterable[Any] | None, *, is_cut: bool, ranks: Ranks = ONE_PROCESS
    ) -> None:
        """Resume from what ``state_dict`` returned; an epoch of data that cannot continue begins anew.

        Args:
            state: the state that ``state_dict`` returned.
            data: the training data.
            is_cut: ``steps_per_epoch`` cuts the epochs.
            ranks: the processes that train together, of which each takes its sums.
        """
        run = state["run"]
        # First, as the data decide whether the open epoch of the state can continue.
        goes_on = self.feed.load_state_dict(state["data"], data, is_cut=is_cut)
        self.epoch.load_state_dict(state_for_rank(ranks, state["epoch"], add_epochs) if goes_on else {})
        self.epoch_num, self.first_step = int(state["epoch_num"]), run["first_step"]
        self.partial = run["partial"]
        self._load_own_epoch(state["own"], ranks)
        self.run.keep_results(run["results"], run["results_at"])
        call = InterruptedCall(**run["call"])
        self.run.evaluated_at = call.evaluated_at
        self.reopens = set(call.open) - (set() if goes_on else {"train_step_epoch"})
        self.interrupted = None if call.entry is None else call

    def _load_own_epoch(self, state: Mapping[str, Any] | None, ranks: Ranks) -> None:
        self.own = None
        if state is not None:
            self.own = self._new_own_epoch()
            self.own.load_state_dict(state, self.epoch_num + 1, ranks)

    def _new_own_epoch(self) -> OwnEpoch:
        return OwnEpoch(f"{self.lifetime.key} own".lstrip(), self.epoch_num + 1)


def _keep_with_updates(
    losses: FiniteLosses, loss: Tensor | None, own: OwnLosses, step: int, examples: float
) -> Tensor | None:
    """Keep the loss of a batch and the losses of its updates, whose means are kept apart if ``loss`` is their sum."""
    is_apart = own.is_shown_apart
    kept = None if loss is None or is_apart else losses.keep(loss, step, None, examples)
    for name, value in own.by_optimizer.items():
        if is_apart or value is not loss:
            # With weight 0 a loss is only checked for nan, and is in no mean: `loss` stands for all of them there.
            losses.keep(value, step, name, examples if is_apart else 0)
    return kept
