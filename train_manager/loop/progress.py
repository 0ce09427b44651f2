"""Progress: how far the training has come, or a phase of it; a phase has one of its own."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, final

from torch import Tensor

from train_manager.loop.books import Lifetime
from train_manager.loop.call import Call, InterruptedCall
from train_manager.loop.epoch import Epoch
from train_manager.loop.feed import Feed
from train_manager.loop.losses import Losses
from train_manager.loop.ranks import ONE_PROCESS, Ranks
from train_manager.loop.requests import Requests
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
        self.epoch = Epoch(epoch_num + 1, key)  # the epoch that is open, or was open last
        self.partial: int | None = None  # where history.epochs has the row of an epoch that was left unfinished
        # The epoch of a loop of the program's own, from its first train_on_batch until end_epoch.
        self.own: Epoch | None = None
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
        own = {name: copy.copy(getattr(self, name)) for name in ("feed", "epoch", "own", "run", "call")}
        return {**self.__dict__, **own, "step": NO_STEP, "findings": [*self.findings]}

    # ---- a run, a call, an epoch ---------------------------------------------------------------------------------

    def begin_run(self, entry: str | None, step_num: int) -> None:
        """Begin a run. The interrupted call of a checkpoint stays until a training call begins."""
        self.run = RunState(entry, None if self.interrupted is None else self.interrupted.evaluated_at)
        self.epoch.prepare_part()
        if not self.feed.is_unfinished:
            self.epoch.forget_part()
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
            self.run.requests = self.run.requests.joined(Requests(evaluate=interrupted.eval_requested))
            if interrupted.stop is not None:
                self.run.stop(*interrupted.stop)
        else:
            number, start_step, self.reopens = new_call(), step_num, set()
        self.call = Call(number, start_step, entry, evaluates, limit)
        self.epoch.prepare_part()
        return () if interrupted is None or interrupted.entry != entry else interrupted.resting

    def prepare_epoch(self, data: Iterable[Any] | None) -> None:
        """Make a new epoch of these data, unless an epoch of them was left unfinished; an own epoch is dropped.

        Raises:
            NonFiniteLoss: a loss of the own epoch was nan or infinite.
        """
        dropped, self.own = self.own, None
        if dropped is not None:
            dropped.losses.check()
        if self.feed.goes_on_with(data):
            self.epoch.prepare_part()
        else:
            self.epoch = Epoch(self.epoch_num + 1, self.lifetime.key)

    def begin_epoch(self, data: Iterable[Any] | None, *, is_last: bool) -> None:
        """Begin the epoch that ``prepare_epoch`` has made, or the next part of the epoch that was left unfinished.

        Args:
            data: the training data.
            is_last: no epoch of the training call comes after this one.
        """
        # A pre hook of the epoch has replaced the data since `prepare_epoch`: the epoch of the former data ends.
        if self.epoch.is_left and not self.feed.goes_on_with(data):
            requests, self.epoch = self.epoch.requests, Epoch(self.epoch_num + 1, self.lifetime.key)
            self.epoch.requests = requests
        # Only now: at the start of the stage, a schedule would have asked the former epoch's feed whether it ends.
        self.epoch.is_last = is_last
        self.epoch.begin_part(self.epoch_num + 1)

    def begin_own_batch(self, *, is_last: bool) -> int:
        """Count a batch of ``train_on_batch`` to the own epoch, which its first batch begins; return its number.

        Args:
            is_last: whether an epoch of the program's own ends with this batch.
        """
        self.own = self.own or self._begin_own_epoch()
        return self.own.count_own_batch(is_last=is_last)

    def end_epoch_part(self) -> Epoch:
        """Add the losses of the present part to its epoch; an own epoch becomes the epoch that was open last.

        Raises:
            NonFiniteLoss: a loss was nan or infinite.
        """
        # Before end_part(), whose NonFiniteLoss must leave no own epoch behind.
        self.epoch, self.own = self.present_epoch, None
        self.epoch.end_part()
        return self.epoch

    @property
    def present_epoch(self) -> Epoch:
        """The own epoch if there is one; else the epoch of the loop that is open, or was open last."""
        return self.epoch if self.own is None else self.own

    def count_losses(self, loss: Tensor | None, terms: Losses, step: int, examples: float) -> Tensor | None:
        """Keep the losses of a batch that was trained on.

        Args:
            loss: the loss of the batch, if it has one.
            terms: with the losses of its updates, which are kept for means of their own if ``loss`` is only their sum.
            step: the number of the batch.
            examples: the number of its examples.

        Returns:
            The scalar that is kept of ``loss``, without its graph; None if ``loss`` is only a sum.

        Raises:
            NonFiniteLoss: the losses kept so far were looked at, and one was nan or infinite.
        """
        losses = self.present_epoch.losses
        if terms.by_optimizer is None:
            kept = None if loss is None else losses.keep(loss, step, None, examples)
        else:
            kept = _keep_with_updates(losses, loss, terms, terms.by_optimizer, step, examples)
        if len(losses.origins) >= DeferredScalars.limit:  # so many scalars wait on the device, unread
            losses.check()
        return kept

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

    @property
    def is_within_epoch(self) -> bool:
        """Whether an epoch has begun and not ended: it was left before its end, or is an own epoch."""
        return self.partial is not None or self.own is not None

    def open_epochs(self) -> list[Lifetime]:
        """Return the lifetimes of the epochs that continue in the next training call."""
        epochs = [self.epoch] if self.feed.is_unfinished else []
        return [epoch.lifetime for epoch in [*epochs, *([] if self.own is None else [self.own])]]

    # ---- what a resume brings to a call ---------------------------------------------------------------------------

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
        return {
            "data": self.feed.state_dict(data),
            "epoch": self.epoch.state_dict(ranks),
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
        return InterruptedCall(*place, [*open_stages], stop, [*resting], run.requests.evaluate)

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
        self.epoch_num, self.first_step = int(state["epoch_num"]), run["first_step"]
        if goes_on:
            self.epoch.load_state_dict(state["epoch"], ranks)
        else:
            self.epoch = Epoch(self.epoch_num + 1, self.lifetime.key)
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
            self.own = self._begin_own_epoch()
            self.own.load_state_dict(state, ranks)

    def _begin_own_epoch(self) -> Epoch:
        own = Epoch(self.epoch_num + 1, f"{self.lifetime.key} own".lstrip())
        own.begin_part(self.epoch_num + 1)
        return own


def _keep_with_updates(
    losses: FiniteLosses,
    loss: Tensor | None,
    terms: Losses,
    by_optimizer: Mapping[str, Tensor],
    step: int,
    examples: float,
) -> Tensor | None:
    """Keep the loss of a batch and the losses of its updates, whose means are kept apart if ``loss`` is their sum."""
    is_apart = terms.is_shown_apart
    kept = None if loss is None or is_apart else losses.keep(loss, step, None, examples)
    for name, value in by_optimizer.items():
        if is_apart or value is not loss:
            # With weight 0 a loss is only checked for nan, and is in no mean: `loss` stands for all of them there.
            losses.keep(value, step, name, examples if is_apart else 0)
    return kept
