"""A training call: how much of it is left as a program makes it again, where it will end, and what it returns."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager

from torch import nn

from train_manager.loop.attributes import Model
from train_manager.loop.eval_at import NEVER, EvalAtPoints
from train_manager.loop.evaluation import Evaluation
from train_manager.loop.feed import epoch_length
from train_manager.loop.last_batch import check_last_batch
from train_manager.loop.program import tell_at_exit
from train_manager.reporting.results import TrainResult
from train_manager.signals import is_at_a_prompt
from train_manager.telling.source_locations import users_level


class TrainingCall(Evaluation[Model]):
    """What a training call is told before its first step and after its last, around the stages of the page."""

    # ---- how much is left --------------------------------------------------------------------------------------------

    def _number_left(self, entry: str, n: int) -> int:
        """Return how many steps or epochs a call is still to train, if the program makes it again."""
        program, before = self._program, self._program.state
        repeats = program.repeats(entry, n)
        # `repeats` has dropped the state, as this training call was not made before the checkpoint: the program is
        # another one, so it continues from what it has loaded so far.
        if before is not None and program.state is None:
            self._tell_of_another_program(before)
        self._restore_again()  # before the count, which the state brings
        count = self.step_num if entry == "train_steps" else self.epoch_num
        rest = max(0, program.begin_call(entry, n, 0 if entry == "train" else count) - count)
        if not repeats:
            # A stop(at="epoch") in the checkpoint was meant for a training call that this program does not make.
            self._progress.forget_stop()
        if program.has_calls_left:
            return 0  # a further call followed it before the checkpoint: it was over, also if it was stopped early
        if n and not rest and entry != "train" and not program.is_in_completed:
            what = f"{entry}({n}) has nothing to do: it was completed before the checkpoint"
            self._warn_of_idle_call(f"{what} that the training resumes from (call it once more, to train more)")
        return rest

    def _warn_of_idle_call(self, text: str) -> None:
        """Warn of a call that was completed before the checkpoint, if no later call of the program trains."""
        if is_at_a_prompt():
            warnings.warn(text, stacklevel=users_level())
        elif "idle calls" not in self._warned_of:
            tell_at_exit(text, self._counts)

    # ---- where it ends -----------------------------------------------------------------------------------------------

    @contextmanager
    def _in_call(self, entry: str, epochs: int | None, steps: int | None, eval_at: EvalAtPoints) -> Iterator[None]:
        """Set train mode, and keep ``start_step`` and ``end_step``, from before the first hook until after the last."""
        progress, resting = self._progress, self._setup.resting_modules()
        with self.mode(training=True), self._collector:
            if progress.interrupted is None or progress.interrupted.entry != entry:
                self._program.again = {}  # another call, whose pre hooks make their own
            rested = progress.begin_call(entry, self.step_num, steps, evaluates=eval_at is not NEVER)
            progress.call.resting = resting
            self._setup.rest(rested)  # submodules that a hook had set to eval mode before the checkpoint
            self._set_first_end(epochs)
            try:
                yield
            finally:  # also after an error: the run may continue, and Accumulate asks for both in train_on_batch
                progress.call.step_limit = None
                progress.call.end_step = self.step_num

    def _set_first_end(self, epochs: int | None) -> None:
        """Note where the training call will end, as it begins; ``epochs`` is None in ``train_steps``."""
        progress, data, per_epoch = self._progress, self.train_data, self.steps_per_epoch
        progress.call.end_epoch = None if epochs is None else self.epoch_num + epochs
        length = epoch_length(data, per_epoch)
        if epochs is not None and length is not None:
            # Less the batches of an epoch that the last training call has left unfinished.
            progress.call.end_step = self.step_num + epochs * length - progress.feed.batches_done(data, per_epoch)
        else:
            progress.call.end_step = progress.call.step_limit

    def _estimate_end_step(self, epochs_after: int, first_step: int | None) -> None:
        """Note anew where the training call will end, as an epoch ends.

        Args:
            epochs_after: how many epochs follow.
            first_step: ``step_num`` as the epoch began; None if it began in an earlier training call.
        """
        call, length = self._progress.call, epoch_length(self.train_data, self.steps_per_epoch)
        if length is not None:
            call.end_step = self.step_num + epochs_after * length
        elif first_step is not None and not self._progress.epoch.requests.end_epoch:
            # The length is unknown: the coming epochs are taken to be as long as this one, which had all its batches.
            call.expected_end = self.step_num + epochs_after * (self.step_num - first_step)

    # ---- what it finds and returns -----------------------------------------------------------------------------------

    def _look_at_last_batch(self) -> None:
        found = check_last_batch(self.model, self.train_data, self.ranks.place.number, self._frozen_parameter_ids())
        if found:
            self.add_finding(*found)

    def _progress_counts(self) -> tuple[int, int, int]:
        return self.epoch_num, self.step_num, self.update_num

    def _result_of_call(self, before: tuple[int, int, int], seconds: float) -> TrainResult:
        """Return what the call has done since the counts that it began with."""
        run = self._progress.run
        epochs, steps, updates = (now - then for now, then in zip(self._progress_counts(), before, strict=True))
        return TrainResult(
            stopped=run.stop_reason,
            stopped_by=run.stopped_by,
            metrics=run.results,
            evaluated_at=run.results_at,
            epochs=epochs,
            steps=steps,
            updates=updates,
            seconds=seconds,
        )

    def _warn_of_nothing_done(self, entry: str, rest: int | None, steps: int) -> None:
        """Warn of a call that had nothing to train, and of batches that no optimizer has learned from."""
        if entry == "train" and rest == 0 and not self._program.is_on_its_way:
            what = f"train() has nothing to do: {self.epoch_num} of {self.epochs} epochs are done"
            warnings.warn(f"{what} (raise `epochs`, or call train_epochs(n))", stacklevel=users_level())
        if steps and not self._progress.call.has_updated and isinstance(self.model, nn.Module):
            what = f"train_batch has not called self.update(loss) in {steps} batches, so hooks of train_backward and"
            text = (
                f"{what} train_optimizer_step did not run; steps of its own, if it makes any, are seen by no extension"
            )
            warnings.warn(text, stacklevel=users_level())
