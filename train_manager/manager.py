"""TrainManager: a training and evaluation loop in named stages. Its shape is the map in ``stages.py``.

What users override, set and request is in ``loop/interface.py``, the stages inside a batch in ``loop/inner_stages.py``.
What lives as long as a training or a phase is a ``Setup`` and a ``Progress``, what lives as long as a batch a ``Step``,
and what a program that is started again has to make again a ``Resume``: these open no stage. Everything else is an
extension.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import replace
from functools import partial
from time import perf_counter
from typing import Any, Final, cast

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from train_manager.core.extension import Extensions
from train_manager.core.outcome import SkipStage
from train_manager.core.stage import Stage
from train_manager.data.batch import Parts, parts_of
from train_manager.data.iteration import no_batch
from train_manager.data.randomness import preserved_random_state
from train_manager.loop.arguments import (
    TrainsItself,
    refuse_a_pair,
    require_data,
    require_eval_data,
    require_eval_step,
    require_ready_to_train,
    warn_of_hooks_that_never_ran,
)
from train_manager.loop.batch_losses import BatchLosses
from train_manager.loop.call import Call
from train_manager.loop.cures import add_cure
from train_manager.loop.epoch import EpochEnd, EpochPart
from train_manager.loop.eval_at import NEVER, EvalAtPoints
from train_manager.loop.feed import END, epoch_length, eval_batches
from train_manager.loop.history import refuse_figures_of_places
from train_manager.loop.inner_stages import InnerStages
from train_manager.loop.interface import Interface, Model
from train_manager.loop.losses import Losses
from train_manager.loop.modes import preserved_modes
from train_manager.loop.objectives import Objective
from train_manager.loop.optimizers import (
    OptimizerArgument,
    step_schedulers,
    warn_of_steps_per_batch,
)
from train_manager.loop.outputs import (
    count_rows,
    joined,
    require_batch_size,
    require_modified_loss,
    require_parts,
    require_prediction,
    require_scalar_loss,
    returned_a_value,
)
from train_manager.loop.outside_stops import wait_for_the_signal_of_a_worker
from train_manager.loop.own_losses import OwnLosses
from train_manager.loop.phases import Level
from train_manager.loop.progress import Progress
from train_manager.loop.region import Region, changed_from_inside
from train_manager.loop.requests import DATA_ENDED, NOTHING, SKIP_BATCH, Requests
from train_manager.loop.results import EvalResult, TrainResult
from train_manager.loop.run_state import RunState
from train_manager.loop.setup import KEPT, Setup
from train_manager.loop.skip import SkipBatch, raise_if_of_another, skippable
from train_manager.loop.step import NO_STEP, Step, StepClock
from train_manager.loop.windows import (
    preserved_gradients,
)
from train_manager.metrics.averages import WeightedMean
from train_manager.metrics.history_rows import figures_of
from train_manager.stages import TOO_LATE
from train_manager.telling.errors import InputError, StageError
from train_manager.telling.source_locations import users_level
from train_manager.validation import require_count

LOSSES: Final = (("train_step_batch", "loss"), ("eval_step_batch", "loss"), ("train_backward", "backward_loss"))
"""The losses that hooks may modify, each with its stage; a stage of the program's own may have what it likes."""

CLOCKED: Final = 50
"""One in so many steps is clocked, and the first of each call."""

EPOCHS_WITHOUT_STEP: Final = 3
"""So many in a row end ``train_steps``: its steps would never be done."""


class TrainManager(InnerStages[Model]):
    """Train and evaluate a model; use it as it is, or subclass it and override what differs.

    >>> import torch
    >>> from torch import nn
    >>> from train_manager import TrainManager
    >>> x = torch.linspace(-1, 1, 32).unsqueeze(1)
    >>> batches = [(x, 2 * x + 1)] * 20
    >>> tm = TrainManager(
    ...     model=nn.Linear(1, 1), loss=nn.functional.mse_loss, epochs=5, train_data=batches,
    ...     eval_data={"train": batches[:1]}, optimizer=lambda parameters: torch.optim.SGD(parameters, lr=.3))
    >>> result = tm.train()
    >>> tm.eval()["train"]["loss"] < 1e-3
    True

    Args:
        model: a module; or any object with ``train_step(batch)``, which does a whole step and returns the loss (and,
            to be evaluated, with ``eval_step(batch)``): it needs no loss and no optimizer.
        loss: ``loss(prediction, targets)``; or any function of fixtures, if one of its required parameters is called
            ``prediction``; or an ``Objective``. May be left out if ``loss_forward`` is overridden, the model calls
            ``add_loss``, or its output has a ``loss``. Parameters of a loss are trained too; training sets no mode of
            its modules, so a frozen teacher in eval mode stays in it.
        optimizer: a torch optimizer of the model's parameters, or a callable that makes one of them; or a dict of names
            of these, where a callable gets the parameters of ``model.<name>``. A class of torch's is made ``fused`` if
            all parameters are on a GPU; any other callable is called as it is.
        train_data: an iterable of batches. A pair is ``(inputs, targets)``; else override ``unpack_batch``.
        eval_data: named iterables of batches, each evaluated. An iterable without a name is called "eval".
        eval_at: when a training evaluates them: any of "start" (before the first batch of all), "epoch" (after each),
            "end" (of each training call), and schedules (``every(250)`` counts batches); ``()`` for never.
        epochs: the number of epochs in all; a second ``train()`` goes on to that number.
        steps_per_epoch: cuts endless data into epochs of this many batches.
        lr_schedule: a callable that makes a torch scheduler of the optimizer, or a dict of these by the names of the
            optimizers; stepped after each epoch.
        device: the device that the model and the batches are moved to; None leaves both as they are.
        seed: for the random states of python, numpy and torch, once, as the first run opens; None touches none.
        train_dir: folder for the files of extensions; None writes nothing. The environment variable
            ``TRAIN_MANAGER_TRAIN_DIR`` takes its place, so that a program can be run again into another folder.
        extensions: a list, or a dict of names; a list may have such dicts: ``[default_extensions(), MyExtension()]``.

    Attributes:
        epoch_num: epochs completed.
        step_num: batches trained on, without those that were skipped.
        update_num: optimizer steps done, of all optimizers.
        optimizer_updates: the same by the names of the optimizers.
        optimizers: the optimizers by name; a sole one is called "optimizer".
        open_windows: the names of those with gradients that no step has used yet.
        called_model: what is called in place of the model: its compiled or wrapped form.
        samples_seen: examples in those batches.
        history: the figures of each epoch and each evaluation.
        run_id: the name of this training in what extensions record: 16 hexadecimal digits, other ones for each object.
        train_dir_number: which TrainManager of this process with a train_dir it is, from 1; None without one.
        first_step: ``step_num`` as the training began, or the present phase.
        start_step: ``step_num`` as the present or last training call began.
        end_step: what ``step_num`` will be as it ends; None while that is unknown.
        batch_num: the number of the batch in its epoch, from 1, also of one that was skipped.
        datasource_name: the set of ``Interleaved`` data that the batch is of; "train" if there is one set only.
        entered_by: the method that opened the present or last run, as "train"; None if the program holds it open.
        stop_reason: the reason that ``stop`` was given in the last run; None if it was not called.

    Raises:
        InputError: an argument is invalid.
        NonFiniteLoss: a loss was nan or infinite; raised at the latest at the end of the epoch.
    """

    _options = replace(
        Interface._options,
        too_late=TOO_LATE,
        replacing=frozenset({"batch_losses"}),
        checks={(stage, name): partial(require_modified_loss, name) for stage, name in LOSSES},
    )

    # ---- to be called ------------------------------------------------------------------------------------------------

    def train(self) -> TrainResult:
        """Train until ``epochs`` epochs are done, those of a loaded checkpoint included; evaluate as ``eval_at`` says.

        A second call trains nothing more, and warns; raise ``tm.epochs``, or call ``train_epochs``.
        """
        warn_of_steps_per_batch(self.lr_schedule, self.epochs)
        return self._make_call("train", epochs=max(1, self.epochs - self.epoch_num))

    def train_epochs(self, n: int) -> TrainResult:
        """Train ``n`` epochs more, whatever ``epochs`` says; an unfinished epoch is the first of them."""
        return self._make_call("train_epochs", epochs=require_count(n, "n", at_least=0))

    def train_steps(self, n: int) -> TrainResult:
        """Train on ``n`` batches more, from where the last call left the data; epochs end and begin on the way."""
        return self._make_call("train_steps", steps=require_count(n, "n", at_least=0))

    def train_epoch(self) -> TrainResult:
        """Train one epoch and evaluate nothing, in a loop of your own.

        >>> from train_manager.testing import tiny_manager
        >>> tm = tiny_manager()
        >>> with tm.run():
        ...     for _ in range(3):
        ...         result = tm.train_epoch()
        >>> tm.epoch_num, tm.step_num
        (3, 9)
        """
        return self._make_call("train_epoch", epochs=1, evaluates=False)

    def train_on_batch(self, batch: Any, last_batch: bool = False) -> Tensor | None:
        """Do one training step on a batch, in a loop of your own. Its hooks run; ``end_epoch`` ends an epoch of yours.

        Hold a run open around the loop: gradients that ``Accumulate`` gathers do not outlive a run.

        >>> from train_manager.testing import tiny_manager
        >>> tm = tiny_manager()
        >>> with tm.run():
        ...     for batch in tm.train_data:
        ...         loss = tm.train_on_batch(batch)
        >>> tm.step_num
        3

        Args:
            batch: a batch as ``train_data`` would give it.
            last_batch: the fixture of this name: whether an epoch of yours ends with it.

        Returns:
            The loss, without its graph and still on its device; None if a hook has skipped the batch.
        """
        self._refuse_inside("train_on_batch", "train", "eval", "train_step_batch")
        require_ready_to_train(self.model, bool(self.optimizers), [batch], 1, {}, 0)
        with self._methods_chosen():
            loss = self._train_on_batch_in_run(batch, last_batch)
        return None if loss is None else loss.detach()

    def end_epoch(self) -> None:
        """End the epoch after this step, as if its data had ended; the next one begins.

        In a loop of your own it ends the epoch that the batches of ``train_on_batch`` are, since the last end of one:
        between two batches at once, in a hook of a batch after its step. Hooks of ``train_step_epoch`` run, schedules
        step, ``epoch_num`` moves, and ``history`` has a row; nothing is evaluated.

        >>> from train_manager.testing import tiny_manager
        >>> tm = tiny_manager()
        >>> with tm.run():
        ...     for batch in [*tm.train_data, *tm.train_data]:
        ...         loss = tm.train_on_batch(batch)
        ...         if tm.step_num % 3 == 0:
        ...             tm.end_epoch()
        >>> tm.epoch_num, [round(row["loss"], 3) for row in tm.history.epochs]
        (2, [0.7, 0.676])

        Without such a batch, and where ``train_steps`` has left an epoch open, it is void.

        Raises:
            StageError: no run is open, and batches of ``train_on_batch`` are in no epoch yet.
        """
        stages, progress = self.fixtures.path, self._progress
        if "train_step_epoch" in stages or "train_step_batch" in stages:
            progress.part.end_requested = True
        elif progress.own is None or progress.feed.is_unfinished or self._store.running is not None:
            return  # a hook of another stage is in no epoch
        elif "run" not in stages:
            cure = "hold a run open around your loop: with tm.run():"
            raise StageError("end_epoch() was called between two batches, but no run is open", stages=stages, cure=cure)
        elif not {"train", "eval", "predict"}.intersection(stages):
            with self._methods_chosen():
                self._end_own_epoch_in_run()

    def eval(self, data: Mapping[str, Iterable[Any]] | Iterable[Any] | None = None) -> dict[str, EvalResult]:
        """Evaluate every set of ``eval_data``, now; or other data, in place of it for this once.

        Returns:
            The results of each set, ``{"valid": {"loss": 0.31}}``; means are over examples, and nan if all batches
            of the set were skipped.

        Raises:
            StageError: a batch is alive; in a hook, call ``eval_soon``.
            InputError: there is no ``eval_data``, or a set is empty.
        """
        self._refuse_inside("eval", "train_step_batch", "eval", "predict")
        sets = self.eval_data if data is None else require_eval_data(data)
        if not sets:
            raise InputError("there is no eval_data to evaluate", cure='pass eval_data={"valid": batches}')
        with self._methods_chosen():
            return self._eval_in_run("eval", sets) or {}

    def eval_on_batch(self, batch: Any) -> EvalResult:
        """Evaluate one batch, as an evaluation set called "batch".

        >>> from train_manager.testing import tiny_manager
        >>> tm = tiny_manager()
        >>> list(tm.eval_on_batch(tm.train_data[0]))
        ['loss']
        """
        self._refuse_inside("eval_on_batch", "train_step_batch", "eval")
        with self._methods_chosen():
            return (self._eval_in_run("eval_on_batch", {"batch": [batch]}) or {}).get("batch", {})

    def predict(self, data: Iterable[Any]) -> Any:
        """Return the predictions of the model, in eval mode and without gradients; random states stay as they are.

        >>> from train_manager.testing import tiny_manager
        >>> tm = tiny_manager()
        >>> tm.predict(torch.rand(5, 2)).shape
        torch.Size([5, 2])

        Args:
            data: batches as ``eval_data`` has them, whose targets are ignored; or one tensor, which is one batch.

        Returns:
            One tensor with a row for each example; or a list of the batches' predictions, if they cannot be joined.
        """
        self._refuse_inside("predict", "train_step_batch", "eval", "predict")
        refuse_a_pair(data)
        with self._methods_chosen():
            return self._predict_in_run([data] if isinstance(data, Tensor) else require_data(data, "data"))

    def run(self) -> AbstractContextManager[None]:
        """Hold one run open: ``train``, ``eval`` and the others join it inside the ``with``."""
        return self._in_run(entry=None)

    def open(self) -> None:
        """Hold a run open until ``close``, where a ``with tm.run():`` would be in the way, as in a notebook.

        Raises:
            StageError: a run is open.
        """
        self._refuse_inside("open", "run", cure="it is open already; close() ends a run that open() has begun")
        self._held = ExitStack()
        self._held.enter_context(self._new_run(None))

    def close(self) -> None:
        """End the run that ``open`` has begun; if there is none, do nothing."""
        self._refuse_inside("close", "phase", "train", "eval", "predict", cure="leave that stage first")
        held, self._held = self._held, None
        if held is not None:
            held.close()

    @contextmanager
    def phase(
        self,
        name: str,
        *,
        model: nn.Module | TrainsItself = KEPT,
        loss: Callable[..., Tensor] | Objective | None = KEPT,
        optimizer: OptimizerArgument | Mapping[str, OptimizerArgument] | None = KEPT,
        lr_schedule: Callable[[Optimizer], Any] | Mapping[str, Callable[[Optimizer], Any]] | None = KEPT,
        train_data: Iterable[Any] | None = KEPT,
        eval_data: Mapping[str, Iterable[Any]] | Iterable[Any] | None = KEPT,
        epochs: int = KEPT,
        steps_per_epoch: int | None = KEPT,
        extensions: Extensions | None = None,
        without: Iterable[str] = (),
    ) -> Iterator[None]:
        """Replace parts of the training for a ``with`` block; they are put back as it ends, also after an error.

        >>> from train_manager.testing import tiny_manager
        >>> tm = tiny_manager(epochs=3)
        >>> with tm.run():
        ...     with tm.phase("head", optimizer=lambda _: torch.optim.Adam(tm.model[2].parameters()), epochs=1):
        ...         result = tm.train()
        ...     result = tm.train()
        >>> tm.step_num, tm.epoch_num
        (12, 3)

        The parts are those of the constructor. With a new optimizer and no ``lr_schedule`` the outer one rests.
        ``epoch_num`` begins at 0 and is put back; ``step_num`` goes on. ``stop`` ends the training of the phase only,
        unless it says ``whole_run=True``. A model without an optimizer has one made by the constructor's callable.

        Args:
            name: the fixture ``phase_name``, which is None outside of phases.
            extensions: more extensions, for the time of the phase.
            without: names of extensions that pause: they let go of what they hold, and take it again afterwards.

        Raises:
            StageError: a training or an evaluation is under way.
            InputError: an argument is invalid.
        """
        stages = ("train", "eval", "predict", "train_step_batch")
        self._refuse_inside("phase", *stages, cure="open it around the call: with tm.phase(...): tm.train()")
        given: dict[str, Any] = {"model": model, "loss": loss, "optimizer": optimizer, "lr_schedule": lr_schedule}
        given |= {"train_data": train_data, "eval_data": eval_data}
        given |= {"epochs": epochs, "steps_per_epoch": steps_per_epoch}
        with self._in_run(None):
            # Before the setup changes: the gradients are those of the optimizers around the phase.
            self._windows.drop_all(f"phase {name!r} began")
            # Outside of the level: what pauses lets go of the model around the phase, and takes that one again.
            with self._pausing(without), self._level_of_phase(name, given), self._windows:
                with preserved_modes(*self._setup.modules_of_model()), self._adding(extensions):
                    with self.staged("phase"):
                        self._go_on()
                        self._progress.reopens.discard("phase")
                        yield
                        self._progress.losses.check()
                        self._windows.drop_all(f"phase {name!r} ended")

    @contextmanager
    def _level_of_phase(self, name: str, given: Mapping[str, Any]) -> Iterator[None]:
        """Train what a phase consists of, with a progress of its own; what is around it comes back as it was."""
        phases, outer = self._resume.phases, Level(self._setup, self._progress)
        outer.progress.losses.check()  # a nan of before must not be told as one of the phase
        self.fixtures["batch_losses"].look()  # while what is around the phase is what the rows are of
        setup = outer.setup.of_phase(given, f"phase {phases.number + 1}")
        around, run = self.fixtures["phase_name"], RunState(outer.progress.run.entry)
        phase = phases.enter(name, outer)
        call = Call(outer.progress.call.number, self.step_num)
        key = f"phase {phases.number}: {' > '.join(phase['path'])}"
        epoch_num, findings = phase["epoch_num"] if phase["is_done"] else 0, outer.progress.findings
        self._setup, self._progress = setup, Progress(run, call, epoch_num, key, findings)
        run.go_on_after(outer.progress.run)  # a run that was stopped trains in none of its phases
        failed, modules = True, None
        try:
            if phase["is_done"]:
                setup.load_modules(phase.get("modules", {}))
            self._modify_level(name)
            try:
                yield
            finally:
                self.fixtures["batch_losses"].look()
            self._warn_of_epochs_without_end()
            modules = None if phase["is_done"] else self._copy_of_own_modules(outer.setup)
            failed = run.stop_at is not None and run.stops_run
        finally:
            self._progress.feed.close()  # a generator of batches cleans up now, not when it is collected
            self._resume.phases.leave(self.epoch_num, failed=failed, modules=modules)
            outer.setup.device = self._setup.device  # a phase does not replace it
            self._setup, self._progress = outer
            outer.progress.run.go_on_after(run)  # a stop of the whole run ends the calls around the phase too
            outer.progress.interrupted = None  # that call was over, so the next one does not go on with it
            self._modify_level(around)

    def _copy_of_own_modules(self, around: Setup) -> dict[str, Any] | None:
        """Return a copy of the states of modules that only the present phase has, if checkpoints are to hold them."""
        own = self._setup.own_modules(around)
        if not own or all(hook.stage != "save_checkpoint" for hook in self._registry.hooks):
            return None
        from train_manager.checkpoints.copies import copied

        return cast("dict[str, Any]", copied(own))

    def _modify_level(self, phase_name: str | None) -> None:
        """Give the fixtures of the run the values of a phase that begins, or of what is around one that ends."""
        self.fixtures.modify("phase_name", phase_name)
        self.fixtures.modify("epoch_num", self.epoch_num)
        self.fixtures.modify("model", self.called_model)
        self.fixtures.modify("start_step", self._progress.call.start_step)
        self.fixtures.modify("end_step", self._progress.call.end_step)

    # ---- a run -------------------------------------------------------------------------------------------------------

    def _in_run(self, entry: str | None) -> AbstractContextManager[None]:
        """Join the run that is open; else open one, entered by the method of that name."""
        return nullcontext() if "run" in self.fixtures.path else self._new_run(entry)

    @contextmanager
    def _new_run(self, entry: str | None) -> Iterator[None]:
        self._prepare_run(entry)  # before the stage: its pre hooks must not run if a check fails
        given: dict[str, Any] = {  # with its names, for `check` and `explain` read them here
            "model": self.called_model,
            "phase_name": None,
            "epoch_num": self.epoch_num,
            "step_num": self.step_num,
            "update_num": self.update_num,
            "samples_seen": self.samples_seen,
            "start_step": self.step_num,
            "end_step": None,
            "standalone_eval": entry in ("eval", "eval_on_batch"),
            "batch_losses": BatchLosses(),
        }
        if self.train_dir is not None:
            given["train_dir"] = self.train_dir
        with (
            preserved_modes(*self._setup.modules_of_model()),
            self._windows,
            self._ended(),
            self.staged("run", given),
        ):
            if not self._has_run:  # before a checkpoint is loaded, whose weights would be initialised away
                self.call_by_name(self.initialize_params)
                self._has_run = True
            self._load_checkpoint()
            self._modify_counts()  # a post hook of load_checkpoint may have set tm.step_num
            try:
                yield
            except BaseException:
                self._progress.own = None  # an error drops an epoch of the loop too
                raise
            self._progress.losses.check()  # the last losses of train_on_batch are in no epoch that would look at them
            self._warn_of_epochs_without_end()
            self._windows.drop_all("the run ended")
        warn_of_hooks_that_never_ran(self._never_reached())

    @contextmanager
    def _ended(self) -> Iterator[None]:
        """Leave no run half open, if Ctrl-C comes at the first or last lines of its end."""
        try:
            yield
        finally:
            run = self._store.open.get("run")
            if isinstance(run, Stage):
                run.end_if_open()

    @skippable("load_checkpoint")
    def _load_checkpoint(self) -> None:
        before = self._resume
        with self.staged("load_checkpoint", {"checkpoint_loaded": False}):
            self._modify_counts()  # as a pre hook has loaded them, for post hooks
        if self._resume is not before:
            self._keep_changes_to_loaded()

    def _go_on(self) -> None:
        """Restore the loaded state once more, at the place of the program in which it was saved.

        What the program did on its way through phases and calls that were completed (another head, other weights or
        learning rates) is undone.
        """
        resume = self._resume
        if resume.state is None or resume.phases.is_in_completed:
            return
        whole, of_phase = resume.take_state(), resume.state_on_the_way()
        if whole is not None:
            self._tell(whole, self._restore(whole, strict=resume.strict, is_whole=True, is_there=True))
        elif of_phase is not None and self._progress.interrupted is None:  # with an epoch of its own
            Level(self._setup, self._progress).load_state_dict(of_phase, is_there=False)
        self._progress.saved_at = self._place_of_checkpoint()  # on the way, that of the open phases is not here yet
        self._modify_counts()

    def _modify_counts(self) -> None:
        """Give the fixtures of the run the counts that were loaded."""
        self.fixtures.modify("epoch_num", self.epoch_num)
        self.fixtures.modify("step_num", self.step_num)
        self.fixtures.modify("update_num", self.update_num)
        self.fixtures.modify("samples_seen", self.samples_seen)

    def _save_checkpoint(self) -> None:
        """Save a checkpoint, at the loop's point of decision; nothing happens if none of the extensions does so."""
        self._progress.run.save_requested = False  # before the hooks, of which one may ask for the next checkpoint
        self._open_save_checkpoint()
        self._progress.saved_at = self._place_of_checkpoint()  # also if a hook skips it: else it is asked for forever

    @skippable("save_checkpoint")
    def _open_save_checkpoint(self) -> None:
        with self.staged("save_checkpoint", {"checkpoint_saved": False}):
            pass  # the place for hooks that save one: tm.state_dict()

    def _saves_between_epochs(self) -> bool:
        """Return whether a requested checkpoint must be saved outside of an epoch.

        Not after an epoch that was stopped half-way and saved there: its position in the data is lost by now.
        """
        return self._progress.partial is None or self._progress.saved_at != self._place_of_checkpoint()

    # ---- training, from the outside in -------------------------------------------------------------------------------

    def _make_call(
        self, entry: str, epochs: int | None = None, steps: int | None = None, evaluates: bool = True
    ) -> TrainResult:
        """Train epochs or steps, in the run that is open or in a run of its own, and return what was done."""
        began = perf_counter()
        with self._methods_chosen():
            self._require_ready(entry, epochs)
            self._progress.forget_results(entry)  # else a call that evaluates nothing returns those of the one before
            before, rest = self._train_rest_of_call(entry, epochs, steps, evaluates) or (self._counted(), None)
        if entry == "train" and rest == 0 and not self._resume.is_on_its_way:
            what = f"train() has nothing to do: {self.epoch_num} of {self.epochs} epochs are done"
            warnings.warn(f"{what} (raise `epochs`, or call train_epochs(n))", stacklevel=users_level())
        run = self._progress.run
        epochs, steps, updates = (now - then for now, then in zip(self._counted(), before, strict=True))
        if steps and not self._progress.call.has_updated and isinstance(self.model, nn.Module):
            what = f"train_batch has not called self.update(loss) in {steps} batches, so hooks of train_backward and"
            told = (
                f"{what} train_optimizer_step did not run; steps of its own, if it makes any, are seen by no extension"
            )
            warnings.warn(told, stacklevel=users_level())
        return TrainResult(
            stopped=run.stop_reason,
            stopped_by=run.stopped_by,
            metrics=run.results,
            evaluated_at=run.results_at,
            epochs=epochs,
            steps=steps,
            updates=updates,
            seconds=perf_counter() - began,
        )

    def _counted(self) -> tuple[int, int, int]:
        return self.epoch_num, self.step_num, self.update_num

    @skippable("run")
    def _train_rest_of_call(
        self, entry: str, epochs: int | None, steps: int | None, evaluates: bool
    ) -> tuple[tuple[int, int, int], int | None]:
        """Train, and return how much was counted before, and how many epochs were left to train.

        Both after a checkpoint was loaded, which may have been since the call.
        """
        with self._in_run(entry):
            if steps is not None:
                steps = self._rest_of_call(entry, steps)
            elif entry == "train_epoch":
                self._go_on()
                self._progress.forget_stop()  # a loop of the program's own asks anew
            else:
                epochs = self._rest_of_call(entry, self.epochs if entry == "train" else epochs or 0)
            before = self._counted()  # after the load, whose steps this call has not trained
            if self._resume.trains:
                self._train(entry, epochs, steps, self.eval_at if evaluates else NEVER)
            return before, epochs

    def _rest_of_call(self, entry: str, n: int) -> int:
        """Return how many steps or epochs a call is still to train, if the program makes it again."""
        resume, before = self._resume, self._resume.state
        repeats = resume.repeats(entry, n)
        if before is not None and resume.state is None:  # another program: what was loaded on its way stays
            self._tell_of_another_program(before)
        self._go_on()  # before the count, which the state brings
        count = self.step_num if entry == "train_steps" else self.epoch_num
        rest = max(0, resume.calls.begin(entry, n, 0 if entry == "train" else count) - count)
        if not repeats:
            self._progress.forget_stop()  # a stop(at="epoch") of before is of a call that this program leaves out
        if resume.calls.is_behind:
            return 0  # it was over, also if it was stopped early
        if n and not rest and entry != "train" and not resume.phases.is_in_completed:
            what = f"{entry}({n}) has nothing to do: it was completed before the checkpoint"
            cure = "call it once more, to train more"
            warnings.warn(f"{what} that the training goes on from ({cure})", stacklevel=users_level())
        return rest

    @skippable("train")
    def _train(self, entry: str, epochs: int | None, steps: int | None, eval_at: EvalAtPoints) -> None:
        progress = self._progress
        with self.mode(training=True), self._collector, self._in_call(entry, epochs, steps, eval_at):
            with self.staged("train"):
                progress.reopens.discard("train")  # after the opening, which @every must not count a second time
                if eval_at.start and self.epoch_num == 0 and self.step_num == progress.first_step:
                    self._evaluate()
                for epochs_after in self._epochs_to_train(epochs):
                    done = self.epoch_num
                    self._train_step_epoch(epochs_after)
                    self._evaluate_and_save(evaluates=eval_at.epoch and self.epoch_num > done)
                self._evaluate_and_save(evaluates=eval_at.end, call_ends=True)
                self._set_end(self.step_num)  # for post hooks of train, also if a stop has ended it early

    @contextmanager
    def _in_call(self, entry: str, epochs: int | None, steps: int | None, eval_at: EvalAtPoints) -> Iterator[None]:
        """Know where a training call will end, from before its first hook until it ends, in whatever way."""
        progress, data, per_epoch = self._progress, self.train_data, self.steps_per_epoch
        resting = progress.begin_call(entry, self.step_num, steps, evaluates=eval_at is not NEVER)
        self._setup.rest(resting)
        self.fixtures.modify("model", self.called_model)  # which may have been replaced while a run is held open
        self.fixtures.modify("start_step", progress.call.start_step)
        length = epoch_length(data, per_epoch)
        if epochs is not None and length is not None:
            self._set_end(self.step_num + epochs * length - progress.feed.done_of(data, per_epoch))
        else:
            self._set_end(progress.call.step_limit)
        try:
            yield
        finally:  # a run may go on after an error, and Accumulate asks for both
            progress.call.step_limit = None
            self._set_end(self.step_num)

    def _expect_end(self, epochs_after: int, first_step: int | None) -> None:
        """Note where the call will end, as an epoch ends; ``first_step`` is None if the epoch was left before."""
        length = epoch_length(self.train_data, self.steps_per_epoch)
        if length is not None:
            self._set_end(self.step_num + epochs_after * length)
        elif first_step is not None and not self._progress.part.end_requested:
            expected = self.step_num + epochs_after * (self.step_num - first_step)
            self._progress.call.expected_end = expected
            self.fixtures.modify("end_step", expected)

    def _set_end(self, end_step: int | None) -> None:
        self._progress.call.end_step = end_step
        self.fixtures.modify("end_step", end_step)

    def _epochs_to_train(self, epochs: int | None) -> Iterator[int | None]:
        """Give one item for each epoch, or part of one: how many come after it; None if steps are counted."""
        if epochs is None:
            yield from self._epochs_of_steps()
            return
        for epochs_after in reversed(range(epochs)):  # counted here: an epoch that is skipped does not move epoch_num
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
            progress.reopens.discard("train_step_epoch")  # also if a hook has skipped it
            without_step = without_step + 1 if self.step_num == before else 0
            if without_step == EPOCHS_WITHOUT_STEP and progress.run.stop_at is None:
                what = f"{without_step} epochs went by without a step, so the steps asked for would never be done"
                raise StageError(what, name="train_steps", cure="does a hook skip every batch, or every epoch?")

    def _reopens_epoch(self) -> bool:
        """Return whether a checkpoint was written within an epoch that has not ended here yet, if only with no step."""
        return "train_step_epoch" in self._progress.reopens

    def _evaluate_and_save(self, *, evaluates: bool, call_ends: bool = False) -> None:
        """Evaluate and save between two epochs, or after the last one, if that was requested."""
        requests = self._decide(call_ends=call_ends)
        if evaluates or requests.evaluate:  # before a checkpoint, whose manifest tells the metrics of its step
            self._evaluate()
            requests = self._decide(call_ends=call_ends)  # its hooks may have requested a checkpoint
        if (requests.save or requests.save_at_end) and self._saves_between_epochs():
            self._save_checkpoint()

    @skippable("train_step_epoch")
    def _train_step_epoch(self, epochs_after: int | None) -> None:
        progress = self._progress
        progress.meet_epoch(self.train_data)  # before the pre hooks, which may end the epoch
        done = progress.feed.done_of(self.train_data, self.steps_per_epoch)
        with self.staged("train_step_epoch", {"batches_done": done}) as stage:
            began, first_step = perf_counter(), None if progress.feed.is_unfinished else self.step_num
            progress.reopens.discard("train_step_epoch")
            progress.begin_epoch(
                self.train_data, is_last=epochs_after == 0
            )  # after the pre hooks, which may have replaced the data
            is_complete = self._train_all_batches()
            progress.end_part(perf_counter() - began)  # before the epoch counts as completed
            if is_complete:
                self._complete_epoch()
                if epochs_after is not None:
                    self._expect_end(epochs_after, first_step)
            self.fixtures["train_result"] = progress.epoch.figures()
            row = self._record_epoch(is_complete)  # before the post hooks of the epoch
            stage.keep("train_result")
        self._add_result(row, stage.kept["train_result"])

    def _end_own_epoch_in_run(self) -> None:
        with self._in_run("end_epoch"):  # it is open; the check reads here that this stage is inside of a run
            self._end_own_epoch()
            if self._decide().save:
                self._save_checkpoint()

    @skippable("train_step_epoch")
    def _end_own_epoch(self) -> None:
        """End the epoch of a loop of the program's own, in which nothing is left to train."""
        progress = self._progress
        assert progress.own is not None, "there is one"
        progress.part = EpochPart()
        with self.staged("train_step_epoch", {"batches_done": progress.own.batches}) as stage:
            progress.end_own_epoch()
            progress.run.number_anew()
            self._complete_epoch()
            self.fixtures["train_result"] = progress.epoch.figures()
            row = self._record_epoch(is_complete=True)
            stage.keep("train_result")
        self._add_result(row, stage.kept["train_result"])

    def _complete_epoch(self) -> None:
        """Step the schedules, and count the epoch, before its post hooks."""
        step_schedulers(self.lr_schedule)  # after the losses were checked: an epoch with nan has no next rate
        self._progress.epoch_num += 1
        self._progress.run.has_ended_epoch = True
        self.fixtures.modify("epoch_num", self._progress.epoch_num)

    def _train_all_batches(self) -> bool:
        """Train on one epoch's batches; return whether the epoch is complete."""
        feed, end = self._progress.feed, None
        assert self.train_data is not None, "train() has checked it"
        is_clocked = self._asks_in_batches("data_seconds")
        feed.begin(self.train_data, self.steps_per_epoch, self.epoch_num, is_clocked=is_clocked)
        try:
            while (end := self._decided_end_of_epoch()) is None:
                try:
                    batch = feed.pull()
                except Exception as error:
                    wait_for_the_signal_of_a_worker(error)
                    if self._asked_from_outside is None:
                        raise
                    batch = END  # the signal has ended the processes that load the data too, and ends the run
                if batch is END:
                    self.decide(DATA_ENDED)  # in place of the decision whether to skip a batch
                else:
                    self._train_or_drop(self._setup.on_device(batch), Step(feed.batch_num))
            if end is EpochEnd.COMPLETE:
                feed.end()  # resets data that a hook has ended half-way, else the next epoch begins there
        finally:
            if self._asked_from_outside is not None:
                feed.leave_until_exit()
            elif end is not EpochEnd.PAUSED:  # also after an error: workers must not wait while it is looked at
                feed.leave()
        return end is EpochEnd.COMPLETE

    def _decided_end_of_epoch(self) -> EpochEnd | None:
        """Do between two batches what was requested, and return how the epoch ends here; None if it goes on."""
        progress = self._progress
        call_ends = self._counts.step_num == progress.call.step_limit
        is_asked = call_ends or self._decides or self._asked_from_outside is not None
        if not is_asked and progress.requests(progress.feed.has_ended) is NOTHING:
            return None  # as nearly always
        while True:  # hooks of an evaluation may request something, and a signal may come during a save
            requests = self._decide(progress.feed.has_ended, call_ends=call_ends)
            if requests is NOTHING and not call_ends:
                return None
            if requests.data_ended and not progress.feed.batch_num:  # empty data would be trained on for ever
                raise no_batch(self.train_data, "train_data", f"in epoch {self.epoch_num + 1}")
            if requests.data_ended or requests.end_epoch:
                return EpochEnd.COMPLETE
            if requests.stop and not call_ends:
                call_ends = True  # of which another process knows only now, so all decide once more whether to save
            elif requests.evaluate and not call_ends:  # as the call ends, the evaluation after the epoch does it
                self._evaluate()
            elif (
                requests.save or requests.save_at_end
            ):  # after the evaluation, whose hooks may find that this step is the best
                self._save_checkpoint()
            elif call_ends:
                return EpochEnd.STOPPED if requests.stop else EpochEnd.PAUSED
            else:
                return None

    @skippable("run")
    def _train_on_batch_in_run(self, batch: Any, last_batch: bool) -> Tensor | None:
        # Gradients and train mode: the loop around it may have evaluated by hand.
        with self._in_run("train_on_batch"), torch.enable_grad(), self._collector:
            for module in self._setup.modules_of_model():
                if not all(part.training for part in module.modules()):
                    module.train()  # until the run ends
            number = self._progress.run.number_own_batch(is_last=last_batch)
            self._progress.begin_own_batch()
            loss = self._train_or_drop(self._setup.on_device(batch), Step(number, is_own=True, is_own_last=last_batch))
            requests = self._decide()
            if requests.end_epoch and not self._progress.feed.is_unfinished:
                self._end_own_epoch()
                requests = self._decide()  # hooks of the epoch may have asked for a checkpoint
            if requests.save:
                self._save_checkpoint()
            return loss

    def _train_or_drop(self, batch: Any, step: Step) -> Tensor | None:
        """Train on a batch, or drop all of it: a batch that is skipped or fails leaves no gradient behind."""
        progress = self._progress
        progress.step = step
        try:
            return self._train_step_batch(batch, step)
        except BaseException as error:
            if isinstance(error, SkipStage):
                raise_if_of_another(error, *self.fixtures.path, "train_step_batch")
                return None
            is_skipped = isinstance(error, SkipBatch)
            if not (is_skipped and step.is_counted):  # a post hook skips the rest of the hooks only
                self._windows.drop(step.backwards)
            if not is_skipped:
                raise
            return None
        finally:
            progress.step = NO_STEP
            if not step.skip_is_decided:  # a pre hook has skipped the batch, and other processes wait for the decision
                self.decide(SKIP_BATCH)

    def _train_step_batch(self, batch: Any, step: Step) -> Tensor | None:
        feed = self._progress.feed
        with self.staged(
            "train_step_batch",
            {"batch": batch, "update_ends": True},
            seldom={
                "batch_num": step.batch_num,
                "datasource_name": feed.datasource_name,
                "update_begins": self._windows.begin,
                "losses": step.losses,
            },
        ):
            done = self._counts.step_num
            is_clocked = not done % CLOCKED or done == self._progress.call.start_step
            clock = StepClock(self._store) if is_clocked else None  # after the pre hooks, whose time does not count
            step.skip_is_decided = True
            if self._decides:
                self._leave_out(self.decide(NOTHING))  # a hook of this process would have skipped the batch before
            region = self._region()
            parts, size = self._unpack(feed.data_name, seldom=region is not None)
            if region is not None or isinstance(self.model, nn.Module):
                try:
                    self._train_parts(region, parts, step)
                except Exception as error:
                    add_cure(error, self._store.computed)
                    raise
            else:
                self.fixtures["loss"] = require_scalar_loss(self.model.train_step(self.fixtures["batch"]))
            # Before the post hooks, which read step_num as that of a batch that is done.
            loss = self._count_step(step, size)
            if clock is not None:
                self._step_seconds.append(clock.seconds())
        return loss

    def _train_parts(self, region: Region | None, parts: Parts, step: Step) -> None:
        """Train on a batch: in its region, or in ``train_batch`` if something looks into the stages there."""
        if region is not None:
            self._progress.call.has_updated = True
            loss = region.forward(parts, self._chosen, step)
            if self._setup.region is not region or region.version != self._store.version:
                raise changed_from_inside(self.fixtures.path)
            region.update(loss, self._forward_again, step)
            return
        new = self._setup.region
        if new is None or new.opened_for:
            around = self._collecting(step) if new is not None and new.collects else nullcontext()
        else:
            around = self._watched(new)
        with around:
            returned = self._chosen.train_batch()
        if returned is not None:
            raise returned_a_value(returned, "train_batch")

    def _leave_out(self, requests: Requests) -> None:
        """Skip the batch if the point of decision says so, for another process has skipped its own."""
        if requests.skip_batch or requests.data_ended:
            self._progress.part.data_has_ended = requests.data_ended
            raise SkipBatch

    # ---- evaluation, from the outside in -----------------------------------------------------------------------------

    @skippable("run")
    def _eval_in_run(self, entry: str, eval_data: Mapping[str, Iterable[Any]]) -> dict[str, EvalResult] | None:
        with self._in_run(entry):
            results = self._eval(eval_data)
            if (
                entry == "eval" and not self._resume.calls.is_behind
            ):  # not that of a batch; a loaded history has it already
                self._record_evaluation(results)
            return results

    def _evaluate(self) -> None:
        """Evaluate for the loop, which does it at most once per step."""
        run = self._progress.run
        run.eval_requested = False  # before the hooks, of which one may ask for a further one after the next step
        if run.evaluated_at != self.step_num:
            self._record_evaluation(self._eval(self.eval_data))
            run.evaluated_at = self.step_num  # not if it has failed

    @skippable("eval")
    def _eval(self, eval_data: Mapping[str, Iterable[Any]]) -> dict[str, EvalResult]:
        if not eval_data:
            return {}
        results: dict[str, EvalResult] = {}
        with self._evaluating(), self.staged("eval") as stage:
            for name, data in eval_data.items():
                result = self._eval_step_epoch(name, data)
                if result is not None:
                    results[name] = result
            self.fixtures["eval_results"] = results
            stage.keep("eval_results")
        self._progress.run.keep_results(stage.kept["eval_results"], self.step_num)
        return self._progress.run.results

    @skippable("eval_step_epoch")
    def _eval_step_epoch(self, name: str, data: Iterable[Any]) -> EvalResult:
        with self.staged("eval_step_epoch", {"datasource_name": name}) as stage:
            mean_loss, data_name = WeightedMean(), f"eval_data[{name!r}]"
            is_within, is_own = self._progress.feed.is_within(data), self._overrides("eval_batch", InnerStages)
            had_loss = [  # None: the batch was skipped
                self._eval_step_batch(self._setup.on_device(batch), mean_loss, data_name, is_own=is_own)
                for batch in eval_batches(data, data_name, self.epoch_num, is_within=is_within)
            ]
            has_none = False in had_loss and True not in had_loss  # an own eval_batch has set none
            self.fixtures["eval_result"] = {} if has_none else {"loss": mean_loss.value()}
            stage.keep("eval_result")  # as hooks will have left it
        return cast(EvalResult, stage.kept["eval_result"])

    @skippable("eval_step_batch")
    def _eval_step_batch(self, batch: Any, mean_loss: WeightedMean, data_name: str, *, is_own: bool) -> bool:
        """Evaluate a batch, perhaps in an own ``eval_batch``; return whether it has a loss."""
        with self.staged("eval_step_batch", {"batch": batch, "losses": Losses()}):
            self._unpack(data_name)  # after the pre hooks, which may have modified the batch
            if isinstance(self.model, nn.Module):
                self._collector.losses = OwnLosses(self.fixtures["losses"]) if is_own else None
                try:
                    returned = self._chosen.eval_batch()
                except Exception as error:
                    add_cure(error, self._store.computed)
                    raise
                finally:
                    self._collector.losses = None
                if returned is not None:
                    raise returned_a_value(returned, "eval_batch")
            else:
                self.fixtures["loss"] = require_scalar_loss(require_eval_step(self.model)(self.fixtures["batch"]))
            loss = self.fixtures.get("loss")
            if loss is not None:
                mean_loss.append(require_scalar_loss(loss), weight=self.fixtures["true_batch_size"])
        return loss is not None

    # ---- prediction --------------------------------------------------------------------------------------------------

    @skippable("run")
    def _predict_in_run(self, data: Iterable[Any]) -> Any:
        with self._in_run("predict"):
            return self._predict(data)

    @skippable("predict")
    def _predict(self, data: Iterable[Any]) -> Any:
        with self._evaluating(), self.staged("predict") as stage:
            batches = eval_batches(data, "data", self.epoch_num, is_within=self._progress.feed.is_within(data))
            parts = [self._predict_step_batch(self._setup.on_device(batch)) for batch in batches]
            self.fixtures["predictions"] = joined([part for part in parts if part is not None])
            stage.keep("predictions")
        return stage.kept["predictions"]

    @skippable("predict_step_batch")
    def _predict_step_batch(self, batch: Any) -> Any:
        with self.staged("predict_step_batch", {"batch": batch}) as stage:
            self.fixtures["inputs"] = self._parts("data")["inputs"]
            try:
                prediction = self._chosen.eval_model_forward()
            except Exception as error:
                add_cure(error, self._store.computed)
                raise
            self.fixtures["prediction"] = require_prediction(prediction, self.model)
            stage.keep("prediction")  # as hooks will have left it
        return stage.kept["prediction"]

    # ---- parts of a step without a stage -----------------------------------------------------------------------------

    def _parts(self, data_name: str) -> Parts:
        """Return the parts of the batch as its pre hooks have left it: what they did to it is what is trained on."""
        as_usual = self._chosen.unpacks_as_usual
        parts = parts_of(self._store.cells["batch"].value) if as_usual else require_parts(self._chosen.unpack_batch())
        self._progress.run.structures[data_name].check(parts, self._counts.step_num + 1)
        return parts

    def _unpack(self, data_name: str, *, seldom: bool = False) -> tuple[Parts, Any]:
        """Define the parts of the batch and its size, and return them; hooks alone ask for ``seldom`` ones."""
        parts = self._parts(data_name)
        as_usual = self._chosen.unpacks_as_usual
        if not as_usual:
            self.fixtures.define_all(parts)  # get_true_batch_size may name them
        counted = count_rows(self._store.cells["batch"].value) if as_usual else self._chosen.get_true_batch_size()
        size = require_batch_size(counted)
        rest = parts if as_usual else {}
        if "train_step_batch" in self._store.open:
            self.fixtures.define_all({**rest, "true_batch_size": size, "global_batch_size": size}, seldom=seldom)
        else:
            self.fixtures.define_all({**rest, "true_batch_size": size})
        return parts, size

    def _count_step(self, step: Step, size: Any) -> Tensor | None:
        """Move the counts, before the post hooks of the batch; return its loss, as the last hook has left it."""
        counts, cells, loss = self._counts, self._store.cells, step.forward_loss
        # A fixture that no hook has asked for has no owner yet, and is as it was defined.
        examples = size if cells["true_batch_size"].owner is None else self._store.cells["true_batch_size"].value
        seen = size if cells["global_batch_size"].owner is None else self._store.cells["global_batch_size"].value
        loss = self._loss_without_forward(step) if loss is None else self._store.cells["loss"].value
        kept = self._progress.count_losses(loss, step.own, counts.step_num + 1, examples)
        step.is_counted = True
        self._windows.ended = self._store.cells["update_ends"].value
        counts.step_num += 1
        counts.samples_seen = counts.samples_seen + seen  # not in place, for hooks may have it
        self._store.cells["step_num"].value = counts.step_num
        self._store.cells["samples_seen"].value = counts.samples_seen
        rows: BatchLosses = self._store.cells["batch_losses"].value
        if rows.appends:
            # As hooks have left it; one that no hook has asked for has no owner yet.
            source = cells["datasource_name"]
            is_asked = source.owner is not None
            name = self._store.cells["datasource_name"].value if is_asked else self._progress.feed.datasource_name
            rows.add(kept, counts.step_num, examples, name, self._losses_of(step))
        return loss

    def _loss_without_forward(self, step: Step) -> Tensor | None:
        """Return the loss of a batch that no ``forward`` has made: its own, or that of its updates."""
        loss: Tensor | None = self.fixtures.get("loss")
        if loss is not None:
            return require_scalar_loss(loss)
        if step.own is not None and step.own.by_optimizer:
            loss = self.fixtures["loss"] = step.own.sum_of_updates()
            step.own.is_shown_apart = len(self.optimizers) > 1
        return loss

    @contextmanager
    def _evaluating(self) -> Iterator[None]:
        """Leave modes, random states and gradients as they were."""
        with self.mode(training=False), preserved_random_state(), preserved_gradients(self._setup.parameters()):
            with self._collector:
                yield

    # ---- the history -------------------------------------------------------------------------------------------------

    def _place(self) -> dict[str, Any]:
        """Return where the training is, for a row of the history."""
        phase = self.fixtures["phase_name"]
        place = {"epoch": self.epoch_num, "step": self.step_num}
        return place if phase is None else {**place, "phase": phase}

    def _record_epoch(self, is_complete: bool) -> dict[str, Any]:
        """Add the present epoch to the history, and return its row; a part without a batch is not added."""
        progress, epoch = self._progress, self._progress.epoch
        row = {**self._place(), "seconds": epoch.seconds, **epoch.figures()}
        if not is_complete:
            row |= {"epoch": self.epoch_num + 1, "partial": True}
        if is_complete or progress.feed.batch_num:
            index = self.history.add_epoch(row, replaces=progress.partial)
            progress.partial = None if is_complete else index
        return row

    def _add_result(self, row: dict[str, Any], result: Mapping[str, Any]) -> None:
        """Add the figures of an epoch to its row, as hooks have left them."""
        row.update(figures_of(result))
        refuse_figures_of_places("train_result", result, self._registry.hooks)

    def _record_evaluation(self, results: Mapping[str, EvalResult] | None) -> None:
        """Add an evaluation to the history."""
        place = self._place()
        if self.fixtures["standalone_eval"]:
            place["standalone"] = True
        self.history.add_evaluation(results or {}, place)
        names = [name for result in (results or {}).values() for name in result]
        refuse_figures_of_places("eval_result", names, self._registry.hooks)
