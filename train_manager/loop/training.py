"""The page: a training call, its epochs, their batches, and the requests between two batches.

Each method calls those below it, from the outside in::

    _make_call               checks, a run unless one is open, and the result
        _train                   stage "train": an evaluation before the first epoch; after each epoch, and at the end,
                                 an evaluation and a checkpoint if they were asked for
            _train_step_epoch        stage "train_step_epoch": its batches; then its losses are checked, the schedules
                                     step, the epoch counts, and the history gets its row
                _train_all_batches       until the data end, or a request ends the epoch or the call:
                    _handle_requests         between two batches: an evaluation, a checkpoint, an end
                    _train_or_drop           a batch: see ``batch.py``
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from time import perf_counter
from typing import Any, Final

from train_manager.core.stage import Stage
from train_manager.data.readable import no_batch
from train_manager.data.reader import END
from train_manager.loop.arguments import INNER
from train_manager.loop.attributes import Model
from train_manager.loop.epoch import Epoch, EpochEnd
from train_manager.loop.eval_at import NEVER, EvalAtPoints
from train_manager.loop.feed import Feed
from train_manager.loop.optimizers import find_rates_below_zero
from train_manager.loop.outputs import refuse_metrics_of_places
from train_manager.loop.requests import DATA_ENDED, NOTHING
from train_manager.loop.schedulers import schedulers_in
from train_manager.loop.skip import skippable
from train_manager.loop.step import Step
from train_manager.loop.training_call import TrainingCall
from train_manager.metrics.history_rows import metrics_of
from train_manager.reporting.results import TrainResult
from train_manager.signals import wait_for_the_signal_of_a_worker
from train_manager.telling.errors import StageError
from train_manager.telling.findings import Finding

EPOCHS_WITHOUT_STEP: Final = 3
"""``train_steps`` fails after this number of epochs in a row without a step: its steps would never be done."""


class Training(TrainingCall[Model]):
    """The stages of a training call and of its epochs, from the outside in."""

    # ---- a training call ---------------------------------------------------------------------------------------------

    def _make_call(
        self, entry: str, epochs: int | None = None, steps: int | None = None, evaluates: bool = True
    ) -> TrainResult:
        """Train epochs or steps, in the run that is open or in a run of its own, and return the result."""
        began = perf_counter()
        with self._methods_chosen():
            self._require_ready(entry, epochs)
            # Else a training call that evaluates nothing would return the results of the training call before it.
            self._progress.forget_results(entry)
            # None if a hook has skipped the run.
            before, rest = self._train_rest_of_call(entry, epochs, steps, evaluates) or (self._progress_counts(), None)
        result = self._result_of_call(before, perf_counter() - began)
        self._warn_of_nothing_done(entry, rest, result.steps)
        return result

    @skippable("run")
    def _train_rest_of_call(
        self, entry: str, epochs: int | None, steps: int | None, evaluates: bool
    ) -> tuple[tuple[int, int, int], int | None]:
        """Train, and return the counts before the first step, and how many epochs were left to train."""
        with self._in_run(entry):  # which may load a checkpoint, and so move the counts
            if steps is not None:
                steps = self._number_left(entry, steps)
            elif entry == "train_epoch":
                # Not in the call log: a loop of the program's own makes as many of these calls as are left.
                self._restore_again()
                self._progress.forget_stop()  # and it calls stop again itself
            else:
                epochs = self._number_left(entry, self.epochs if entry == "train" else epochs or 0)
            before = self._progress_counts()  # after the load, whose steps this call has not trained
            if self._program.trains:
                self._train(entry, epochs, steps, self.eval_at if evaluates else NEVER)
            return before, epochs

    @skippable("train")
    def _train(self, entry: str, epochs: int | None, steps: int | None, eval_at: EvalAtPoints) -> None:
        with self._in_call(entry, epochs, steps, eval_at), self.staged("train"):
            self._begin_call()
            if eval_at.start and self._is_untrained():
                self._evaluate()
            for epochs_after in self._epochs_to_train(epochs):
                done = self.epoch_num
                self._train_step_epoch(epochs_after)
                self._evaluate_and_save(evaluates=eval_at.epoch and self.epoch_num > done)
            self._evaluate_and_save(evaluates=eval_at.end, call_ends=True)
            self._progress.call.end_step = self.step_num  # for post hooks of train, also if a stop has ended it early

    def _begin_call(self) -> None:
        """Look at the model and the data, and restore what was open in the checkpoint that the call goes on from."""
        self._look_at_last_batch()
        # Only now: schedules (@every) read `reopens` as the stage opens, and must not count it a second time.
        self._progress.reopens.discard("train")
        if not self._reopens_epoch():
            self._restore_opened()

    def _is_untrained(self) -> bool:
        """Return whether nothing was trained yet; or in a phase, nothing in this phase."""
        return self.epoch_num == 0 and self.step_num == self._progress.first_step

    # ---- its epochs --------------------------------------------------------------------------------------------------

    def _epochs_to_train(self, epochs: int | None) -> Iterator[int | None]:
        """Give one item for each epoch, or part of one: how many come after it; None if steps are counted."""
        if epochs is None:
            yield from self._epochs_of_steps()
            return
        # Counted here, not by epoch_num: an epoch that a hook skips counts here, but does not move epoch_num.
        for epochs_after in reversed(range(epochs)):
            if self._decide().stops and not self._reopens_epoch():
                return
            yield epochs_after

    def _epochs_of_steps(self) -> Iterator[None]:
        """Give one item for each epoch until the steps of the call are done.

        Raises:
            StageError: several epochs have gone by without a step.
        """
        progress, limit, without_step = self._progress, self._progress.call.step_limit or 0, 0
        while self._reopens_epoch() or (self.step_num < limit and not self._decide().stops):
            before = self.step_num
            yield None
            progress.reopens.discard("train_step_epoch")  # also if a hook has skipped the epoch: else it loops forever
            without_step = without_step + 1 if self.step_num == before else 0
            if without_step == EPOCHS_WITHOUT_STEP and not progress.run.requests.stops:
                what = f"{without_step} epochs went by without a step, so the steps asked for would never be done"
                raise StageError(what, name="train_steps", cure="does a hook skip every batch, or every epoch?")

    def _reopens_epoch(self) -> bool:
        """Return whether a checkpoint was written within an epoch that this program has not opened again yet."""
        # Such an epoch opens even if no step of it is left, so that its hooks run at its end.
        return "train_step_epoch" in self._progress.reopens

    def _evaluate_and_save(self, *, evaluates: bool, call_ends: bool = False) -> None:
        """Evaluate and save between two epochs, or after the last one, if that was requested."""
        requests = self._decide(call_ends=call_ends)
        if (evaluates and self.eval_data) or requests.evaluate:
            self._evaluate()  # before a checkpoint: its manifest lists the metrics of its step
            requests = self._decide(call_ends=call_ends)  # hooks of the evaluation may have requested a checkpoint
        if (requests.save or requests.save_at_end) and self._saves_between_epochs():
            self._save_checkpoint()

    @skippable("train_step_epoch")
    def _train_step_epoch(self, epochs_after: int | None) -> None:
        progress = self._progress
        progress.prepare_epoch(self.train_data)  # before the pre hooks, which may end the epoch
        done = progress.feed.batches_done(self.train_data, self.steps_per_epoch)
        with self.staged("train_step_epoch", {"batches_done": done}) as stage:
            first_step = None if progress.feed.is_unfinished else self.step_num
            self._begin_epoch(is_new=first_step is not None, is_last=epochs_after == 0)
            is_complete = self._train_all_batches()
            progress.epoch.batches = progress.feed.batch_num
            row = self._close_epoch(stage, is_complete)
            if is_complete and epochs_after is not None:
                self._estimate_end_step(epochs_after, first_step)
        self._add_result(row, stage.kept["train_result"])

    def _begin_epoch(self, *, is_new: bool, is_last: bool) -> None:
        """Begin an epoch, or the rest of an epoch, as its pre hooks have left the data and the optimizers."""
        self._progress.reopens.discard("train_step_epoch")
        self._restore_opened()
        # Not in the rest of an epoch: a program that resumes would tell it earlier.
        if is_new and (below := find_rates_below_zero(self.optimizers)):
            self.add_finding(*below)
        self._progress.begin_epoch(self.train_data, is_last=is_last)

    def _close_epoch(self, stage: Stage, is_complete: bool) -> dict[str, Any]:
        """Count the epoch if it is complete, and add it to the history, before its post hooks; return its row."""
        # Before the epoch counts as completed: this raises NonFiniteLoss if a loss was nan.
        epoch = self._progress.end_epoch_part()
        metrics = epoch.metrics(self.ranks)
        if is_complete:
            self._tell_of_skipped_batches(epoch)
            self._complete_epoch()
        self.fixtures["train_result"] = metrics
        row = self._record_epoch(metrics, is_complete)
        stage.keep("train_result")
        return row

    def _tell_of_skipped_batches(self, epoch: Epoch) -> None:
        if 2 * epoch.skipped > epoch.batches:
            what = "hooks have skipped more than half of the batches of an epoch (SkipBatch)"
            numbers = {"epoch": self.epoch_num + 1, "skipped": epoch.skipped, "batches": epoch.batches}
            self.add_finding(Finding("skipped batches", "note", what, numbers=numbers, code="batches-skipped"))

    def _complete_epoch(self) -> None:
        """Step the schedules, and count the epoch, before its post hooks."""
        for scheduler in schedulers_in(self.lr_schedule):
            scheduler.step()  # after the losses were checked: an epoch with a nan must change no rate
        self._progress.epoch_num += 1
        self._progress.run.has_ended_epoch = True

    def _record_epoch(self, metrics: Mapping[str, float], is_complete: bool) -> dict[str, Any]:
        """Add the present epoch to the history, and return its row; a part without a batch is not added."""
        progress, epoch = self._progress, self._progress.epoch
        row = {**self._begin_row(), "seconds": epoch.seconds, **metrics}
        if not is_complete:
            row |= {"epoch": self.epoch_num + 1, "partial": True}
        if is_complete or progress.feed.batch_num:
            # The row of an earlier part of this epoch is replaced: the new row has the metrics of both.
            index = self.history.add_epoch(row, replaces=progress.partial)
            progress.partial = None if is_complete else index
        return row

    def _add_result(self, row: dict[str, Any], result: Mapping[str, Any]) -> None:
        """Add the metrics of an epoch to its row, as hooks have left them."""
        row.update(metrics_of(result))  # the same dict that the history has
        refuse_metrics_of_places("train_result", result, self._registry.hooks)

    # ---- the batches of an epoch -------------------------------------------------------------------------------------

    def _train_all_batches(self) -> bool:
        """Train on one epoch's batches; return whether the epoch is complete."""
        feed, end = self._progress.feed, None
        assert self.train_data is not None, "train() has checked it"
        is_clocked = self._asks_in_batches("data_seconds")
        self.ranks.require_data(self.train_data, {})  # which a pre hook may have replaced
        place = self.ranks.place
        feed.begin(self.train_data, self.steps_per_epoch, self.epoch_num, is_clocked=is_clocked, place=place)
        try:
            while (end := self._handle_requests()) is None:
                batch = self._pull(feed)
                if batch is END:
                    # Other processes have a batch, and decide now whether to skip it. Each process must take part.
                    self.decide(DATA_ENDED)
                else:
                    self._train_or_drop(self._setup.on_device(batch), Step(feed.batch_num, feed.examples_here))
            if end is EpochEnd.COMPLETE:
                feed.end()  # resets data that a hook has ended half-way, else the next epoch would begin there
        finally:
            if self._asked_from_outside is not None:
                feed.leave_until_exit()
            elif end is not EpochEnd.PAUSED:  # also after an error: the workers of a DataLoader must not wait on
                feed.leave()
        return end is EpochEnd.COMPLETE

    def _asks_in_batches(self, fixture: str) -> bool:
        """Return whether a hook or a provider of a batch asks for a fixture, however seldom it runs."""
        plans = [self._registry.plans[stage] for stage in ("train_step_batch", *INNER)]
        asked = [hook.parameters for plan in plans for hook in (*plan.around, *plan.pre, *plan.post)]
        asked += [provider.call.parameters for plan in plans for provider in plan.providers.values()]
        return any(fixture in names for names in asked)

    def _pull(self, feed: Feed) -> Any:
        """Return the next batch; END if there is none, or a signal has ended the workers that make it."""
        try:
            return feed.pull()
        except Exception as error:
            # A cluster sends its signal to the workers of a DataLoader too; their end reaches the loop as an error of
            # the loader, perhaps before the signal reaches this process.
            wait_for_the_signal_of_a_worker(error)
            if self._asked_from_outside is None:
                raise
            return END  # no more data: the run ends here as a stop ends it, and not with the loader's error

    def _handle_requests(self) -> EpochEnd | None:
        """Follow the requests between two batches, and return how the epoch ends here; None if it continues."""
        progress = self._progress
        call_ends = self._counts.step_num == progress.call.step_limit
        is_asked = call_ends or self._decides or self._asked_from_outside is not None
        # The usual step: nothing was requested, and no other process has to be asked.
        requests, of_epoch = progress.run.requests, progress.epoch.requests
        if not is_asked and requests is NOTHING and of_epoch is NOTHING and not progress.feed.has_ended:
            return None
        # Each turn does one thing and decides anew, until nothing is left: hooks of an evaluation may request a
        # checkpoint, and a signal may come while one is saved.
        while True:
            requests = self._decide(progress.feed.has_ended, call_ends=call_ends)
            if requests is NOTHING and not call_ends:
                return None
            if requests.data_ended and not progress.feed.batch_num:  # empty data would be trained on for ever
                raise no_batch(self.train_data, "train_data", f"in epoch {self.epoch_num + 1}")
            if requests.data_ended or requests.end_epoch:
                return EpochEnd.COMPLETE
            if requests.stop and not call_ends:
                # The stop may come from another process, so this one learns only now that its call ends: all
                # processes decide once more, as save_soon(at="end") counts from here on.
                call_ends = True
            elif requests.evaluate and not call_ends:  # if the call ends, _evaluate_and_save evaluates after the epoch
                self._evaluate()
            elif requests.save or requests.save_at_end:
                # After the evaluation, whose hooks may find that this step is the best so far.
                self._save_checkpoint()
            elif call_ends:
                return EpochEnd.STOPPED if requests.stop else EpochEnd.PAUSED
            else:
                return None
