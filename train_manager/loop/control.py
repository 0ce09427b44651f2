"""What hooks read of the loop and request of it: how far it is, ``stop``, ``end_epoch``, ``eval_soon``."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Set
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from operator import attrgetter
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from train_manager.core.decorators import fixture
from train_manager.data.iteration import example_index_of
from train_manager.loop.feed import epoch_length
from train_manager.loop.outputs import require_training_loss
from train_manager.loop.parts import Model, Parts
from train_manager.loop.requests import NOTHING, Requests
from train_manager.loop.results import EvalResult
from train_manager.loop.step import NO_BACKWARD
from train_manager.loop.windows import free_gradients, once_known
from train_manager.model.optimizers import learning_rates
from train_manager.schedules.rules import Progress
from train_manager.telling.errors import StageError
from train_manager.validation import require_one_of


def _counted(name: str) -> Any:
    """Make an attribute that is kept in ``_counts``."""
    return property(attrgetter(f"_counts.{name}"), lambda manager, value: setattr(manager._counts, name, value))


class LoopControl(Parts[Model]):
    """The side of the loop that hooks see."""

    epoch_num: int = _counted("epoch_num")
    step_num: int = _counted("step_num")
    update_num: int = _counted("update_num")
    samples_seen: Any = _counted("samples_seen")
    optimizer_updates: dict[str, int] = _counted("optimizer_updates")

    # ---- requests ------------------------------------------------------------------------------------------------

    def stop(self, reason: str, at: str = "step", *, whole_run: bool = False) -> None:
        """End the training after this step, or with ``at="epoch"`` after this epoch; hooks run as in any other end.

        In a phase it ends the training of this phase, or with ``whole_run`` that of the run.

        A checkpoint that is saved before the epoch ends keeps a stop ``at="epoch"``. A program that goes on from where
        a stop has ended it trains on.

        Raises:
            StageError: no run is open.
        """
        require_one_of(at, "at", ("step", "epoch"))
        path = self.fixtures.path
        if "run" not in path:
            raise StageError("stop() was called, but no run is open", stages=path)
        asker = self._store.running
        asked_by = f"{asker.label} at {' > '.join(path)}" if asker is not None else None
        self._run.stop(reason, at, asked_by, whole_run or "phase" not in path)

    def stop_from_outside(self, reason: str) -> bool:
        """End the run after this step, at the request of a signal handler or another thread; hooks call ``stop``.

        It may be called at any moment: it only leaves a note, at which the loop looks after each step. In a phase too
        it ends the whole run.

        Returns:
            Whether the loop will see the note: a training is under way, or the run is ending. Else none is left.
        """
        run = self._store.open.get("run")
        if "train" not in self._store.open and not (run is not None and run.is_ending):
            return False
        self._asked_from_outside = reason
        return True

    def end_epoch(self) -> None:
        """End the epoch after this step, as if its data had ended; the next one begins. Outside an epoch it is void."""
        if "train_step_epoch" in self.fixtures.path:
            self._run.epoch_end_requested = True

    def eval_soon(self) -> None:
        """Ask for an evaluation between this step and the next; for hooks, which cannot evaluate themselves.

        Raises:
            StageError: no run is open.
        """
        if "run" not in self.fixtures.path:
            cure = "outside of a run, evaluate at once: tm.eval()"
            raise StageError("eval_soon() was called, but no run is open", stages=self.fixtures.path, cure=cure)
        self._run.eval_requested = True

    def decide(self, requests: Requests) -> Requests:
        """Return what the loop does of what was requested: all of it. It looks at requests nowhere else.

        An extension may replace it, so that processes agree: ``train_manager.decide = self.agree``. It is called in
        each process twice for each batch, and around each epoch, whether or not something was requested. A request may
        be added, but one that was made cannot be taken back.
        """
        return requests

    def _decide(self, data_ended: bool = False) -> Requests:
        """Return what the loop does of what was requested, here or in a process that this one agrees with."""
        if self._asked_from_outside is not None:
            self._run.stop(self._asked_from_outside, "step", None, whole_run=True)
        requests = self.decide(self._run.requests(data_ended))
        if requests is not NOTHING:
            self._run.take_over(requests)
        return requests

    # ---- how far the loop is -------------------------------------------------------------------------------------

    @property
    def start_step(self) -> int:
        return self._run.start_step

    @property
    def end_step(self) -> int | None:
        return self._run.end_step if self._run.end_step is not None else self._run.expected_end

    @property
    def learning_rates(self) -> dict[str, tuple[float | Tensor, ...]]:
        """The present learning rates by the names of the optimizers, one for each group of parameters.

        >>> from train_manager.testing import tiny_manager
        >>> tiny_manager().learning_rates
        {'optimizer': (0.5,)}
        """
        return {name: learning_rates(optimizer) for name, optimizer in self.optimizers.items()}

    @property
    def step_limit(self) -> int | None:
        """The ``step_num`` at which the present call of ``train_steps`` ends; None in other calls."""
        return self._run.step_limit

    @property
    def stop_reason(self) -> str | None:
        return self._run.stop_reason

    @property
    def entered_by(self) -> str | None:
        return self._run.entry

    @property
    def datasource_name(self) -> str:
        return self._feed.datasource_name

    @property
    def progress(self) -> Progress:
        """How far the present or last training call has come."""
        run, end = self._run, self.end_step
        total = None if end is None else end - run.start_step
        return Progress(run.call, self._steps_begun() - run.start_step, total, self._is_last_step)

    @property
    def resumed_stages(self) -> Set[str]:
        """The stages that were open in the checkpoint that this run goes on from, until they have opened again."""
        return self._run.resumed

    @property
    def median_step_seconds(self) -> float:
        """How long a training step takes, without the time of hooks; nan before the first.

        The median of the last thousand. On a GPU it is the time to hand the work over.
        """
        import statistics  # here: with fractions and decimals it takes a while

        return statistics.median(self._step_seconds) if self._step_seconds else float("nan")

    def _is_last_step(self) -> bool:
        run = self._run
        if run.stop_at == "step" or self._steps_begun() == run.end_step:
            return True
        ends_with_epoch = run.is_last_epoch or run.stop_at == "epoch"
        return ends_with_epoch and (run.epoch_end_requested or self._is_last_batch())

    def _steps_begun(self) -> int:
        """Return ``step_num``, with a batch that is not counted yet."""
        return self.step_num + (not self._step.is_counted)

    def _is_last_batch(self) -> bool:
        return self._step.is_own_last if self._step.is_own else self._feed.is_last()

    @fixture("train_step_batch")
    def last_batch(self) -> bool:
        """Whether the epoch's data ends with this batch; if its length is unknown, this looks one batch ahead."""
        return self._is_last_batch()

    @fixture("train_step_batch")
    def example_index(self) -> Any:
        """The rows of this batch in the data set, if the data knows them (``InMemory``, ``Rows``)."""
        return example_index_of(None if self._step.is_own else self.train_data, self._feed.data_name)

    # ---- the loss anew -------------------------------------------------------------------------------------------

    def closure(self, optimizer: str | None = None) -> Callable[[], Tensor]:
        """Return a function that computes the loss of the last backward anew, with its gradients, as torch's closures.

        It opens no stage, so hooks of ``train_optimizer_step`` may call it. Fixtures keep their values.

        Raises:
            InputError: the loss was given as a tensor, or the gradients are not those of one plain loss.
            StageError: there was no backward since the last step.
        """
        name, _ = self._optimizer_in_batch(optimizer, "closure")
        window = self._windows.get(name)
        if window is None:
            what = f"closure() was called, but optimizer {name!r} has run no backward since its last step"
            raise StageError(
                what, name=name, stages=self.fixtures.path, cure="call it in a hook of train_optimizer_step"
            )
        backward = self._step.backwards.get(name, NO_BACKWARD)
        return partial(self._loss_again, name, window.require_loss_again(backward.loss_again, name))

    def _closure_of_step(self, name: str) -> Callable[[], Tensor]:
        """Return the closure that a step calls; its first call finds the gradients there, as hooks have seen them."""
        step = self._step
        loss = step.backwards[name].loss
        if loss is step.hooked_loss and step.hooked_loss is not step.forward_loss:
            self._windows[name].is_modified = True
        return once_known(loss, self.closure(name))

    def _loss_again(self, name: str, compute: Callable[[], Tensor]) -> Tensor:
        """Compute a loss anew, under the precision of the batch, and its gradients."""
        free_gradients(self._windows[name].optimizer)
        autocast: Callable[[], AbstractContextManager[Any]] = self.fixtures.get("autocast", nullcontext)
        with torch.enable_grad(), autocast():
            loss = require_training_loss(compute())
        self._windows.backward(name, loss, retain_graph=False)
        return loss

    def _optimizer_in_batch(self, name: str | None, method: str) -> tuple[str, Optimizer]:
        """Return an optimizer and its name, in a method that ``train_batch`` calls."""
        if "train_step_batch" in self._store.open:
            sole = self.optimizer
            if name is None and isinstance(sole, Optimizer):  # as nearly always
                return "optimizer", sole
        else:
            cure = "call it in train_batch(self, ...), or train on a batch: tm.train_on_batch(batch)"
            what = f"{method}() was called, but no batch is being trained on"
            raise StageError(what, stages=self.fixtures.path, cure=cure)
        name = self._optimizer_name(name, method)
        return name, self.optimizers[name]

    # ---- the history ---------------------------------------------------------------------------------------------

    def _place(self) -> dict[str, Any]:
        """Return where the training is, for a row of the history."""
        phase = self.fixtures["phase_name"]
        place = {"epoch": self.epoch_num, "step": self.step_num}
        return place if phase is None else {**place, "phase": phase}

    def _record_epoch(self, is_complete: bool) -> dict[str, Any]:
        """Add the present epoch to the history, and return its row; a part without a batch is not added."""
        row = {**self._place(), "seconds": self._epoch.seconds, **self._epoch.figures()}
        if not is_complete:
            row |= {"epoch": self.epoch_num + 1, "partial": True}
        if is_complete or self._feed.batch_num:
            self.history.add_epoch(row)
        return row

    def _record_evaluation(self, results: Mapping[str, EvalResult] | None) -> None:
        """Add an evaluation to the history."""
        place = self._place()
        if self.fixtures["standalone_eval"]:
            place["standalone"] = True
        self.history.add_evaluation(results or {}, place)

    # ---- where a call ends ---------------------------------------------------------------------------------------

    def _begin_call(self, epochs: int | None, steps: int | None) -> None:
        """Note that a training call begins, and where it will end, if that is known."""
        run = self._run
        run.begin_call(self.step_num, steps)
        self.fixtures.modify("model", self.called_model)  # which may have been replaced while a run is held open
        self.fixtures.modify("start_step", run.start_step)
        length = epoch_length(self.train_data, self.steps_per_epoch)
        if epochs is not None and length is not None:
            self._set_end(self.step_num + epochs * length - self._feed.done_of(self.train_data, self.steps_per_epoch))
        else:
            self._set_end(run.step_limit)

    @contextmanager
    def _in_call(self, epochs: int | None, steps: int | None) -> Iterator[None]:
        """Know where a training call will end, from before its first hook until it ends, in whatever way."""
        self._begin_call(epochs, steps)
        try:
            yield
        finally:  # a run may go on after an error, and Accumulate asks for both
            self._run.step_limit = None
            self._set_end(self.step_num)

    def _expect_end(self, epochs_after: int, first_step: int | None) -> None:
        """Note where the call will end, as an epoch ends; ``first_step`` is None if the epoch was left before."""
        length = epoch_length(self.train_data, self.steps_per_epoch)
        if length is not None:
            self._set_end(self.step_num + epochs_after * length)
        elif first_step is not None and not self._run.epoch_end_requested:
            self._run.expected_end = self.step_num + epochs_after * (self.step_num - first_step)
            self.fixtures.modify("end_step", self._run.expected_end)

    def _set_end(self, end_step: int | None) -> None:
        self._run.end_step = end_step
        self.fixtures.modify("end_step", end_step)

    def _reopens_epoch(self) -> bool:
        """Return whether a checkpoint was written within an epoch that has not ended here yet, if only with no step."""
        return "train_step_epoch" in self._run.resumed

    def _epochs_to_train(self, epochs: int | None) -> Iterator[int | None]:
        """Give one item for each epoch, or part of one: how many come after it; None if steps are counted."""
        run = self._run
        if epochs is not None:  # counted here: an epoch that is skipped does not move epoch_num
            for epochs_after in reversed(range(epochs)):
                if self._decide().stops and not self._reopens_epoch():
                    return
                yield epochs_after
            return
        assert run.step_limit is not None, "either epochs or steps are given"
        while self._reopens_epoch() or (self.step_num < run.step_limit and not self._decide().stops):
            before, goes_on = (self.step_num, self.epoch_num), self._feed.is_unfinished
            yield None
            run.resumed.discard("train_step_epoch")  # also if a hook has skipped it
            had_no_batch_left = goes_on and self.epoch_num > before[1]
            is_over = self.step_num >= run.step_limit or run.stop_at is not None
            if self.step_num == before[0] and not is_over and not had_no_batch_left:
                raise StageError(
                    "an epoch went by without a step, so the steps asked for would never be done",
                    name="train_steps",
                    cure="does a hook skip every batch, or every epoch?",
                )
