"""TrainManager: a training and evaluation loop in named stages. Its shape is the map in ``stages.py``.

``loop/interface.py`` has what users override, set and request; ``loop/saving.py`` what a checkpoint holds;
``loop/inner_stages.py`` the stages inside a batch. The state is in objects that open no stage:

    Setup      the components of a training or a phase: model, loss, optimizers, data, ...
    Progress   how far the training or the phase has come: its epochs, the present run, the present training call
    Step       the batch that is trained on
    Program    the training calls and phases that a program makes again after it was started again

The methods below stand in the order in which a run reaches them, from the outside in. Everything else is an extension.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import replace
from time import perf_counter
from typing import Any, Final, Never, cast

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from train_manager.core.extension import Extensions
from train_manager.core.outcome import SkipStage
from train_manager.core.stage import Stage
from train_manager.data.batch import Unpacked, unpack
from train_manager.data.iteration import no_batch
from train_manager.data.randomness import preserve_random_state
from train_manager.data.shares import ALONE, Share
from train_manager.loop.arguments import (
    TrainsItself,
    refuse_a_pair,
    refuse_name_of_set,
    require_data,
    require_eval_data,
    require_eval_step,
    require_last_batch,
    require_ready_to_train,
    two_arguments_error,
    warn_of_hooks_that_never_ran,
)
from train_manager.loop.batch_losses import BatchLosses
from train_manager.loop.call import Call
from train_manager.loop.cures import add_cure
from train_manager.loop.epoch import Epoch, EpochEnd
from train_manager.loop.eval_at import NEVER, EvalAtPoints
from train_manager.loop.feed import END, epoch_length, eval_batches
from train_manager.loop.history import refuse_metrics_of_places
from train_manager.loop.inner_stages import InnerStages
from train_manager.loop.interface import Interface, Model
from train_manager.loop.last_batch import check_last_batch
from train_manager.loop.level import Level
from train_manager.loop.losses import Losses
from train_manager.loop.modes import preserve_modes
from train_manager.loop.objectives import Objective
from train_manager.loop.optimizers import (
    OptimizerArgument,
    find_rates_below_zero,
    step_schedulers,
    warn_of_steps_per_batch,
)
from train_manager.loop.outputs import (
    count_rows,
    join_predictions,
    require_batch_size,
    require_modified_loss,
    require_prediction,
    require_scalar_loss,
    require_unpacked,
    returned_value_error,
)
from train_manager.loop.outside_stops import is_at_a_prompt, wait_for_the_signal_of_a_worker
from train_manager.loop.own_losses import OwnLosses
from train_manager.loop.own_shares import share_of_batch
from train_manager.loop.program import tell_at_exit
from train_manager.loop.progress import EVALUATIONS, Progress
from train_manager.loop.ranks import eval_shares
from train_manager.loop.region import Region, changed_inside_error
from train_manager.loop.requests import DATA_ENDED, NOTHING, SKIP_BATCH, Requests
from train_manager.loop.results import EvalResult, TrainResult
from train_manager.loop.run_state import RunState
from train_manager.loop.setup import KEPT, Setup
from train_manager.loop.skip import SkipBatch, raise_if_of_another, skippable, skipped_too_late_error
from train_manager.loop.step import NO_STEP, Step, StepClock
from train_manager.loop.windows import (
    preserve_gradients,
)
from train_manager.metrics.averages import WeightedMean, mean_of
from train_manager.metrics.history_rows import metrics_of
from train_manager.stages import TOO_LATE
from train_manager.telling.errors import InputError, StageError
from train_manager.telling.findings import Finding
from train_manager.telling.source_locations import users_level
from train_manager.validation import require_count

LOSSES: Final = (("train_step_batch", "loss"), ("eval_step_batch", "loss"), ("train_backward", "backward_loss"))
"""The losses that hooks may modify, each with its stage: here a modified loss is checked to be a scalar."""

CLOCKED: Final = 50
"""The loop clocks every 50th step, and the first step of each training call."""

EPOCHS_WITHOUT_STEP: Final = 3
"""``train_steps`` fails after this number of epochs in a row without a step: its steps would never be done."""


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
            ``add_loss``, or its output has a ``loss`` or is a dict of scalar losses, whose sum is trained. Parameters
            of a loss are trained too; training sets no mode of its modules, so a frozen teacher in eval mode stays in
            it.
        optimizer: a torch optimizer of the model's parameters, or a callable that makes one of them (of the model, if
            its first parameter is called ``model`` or ``model_or_params``); or a dict of names of these, where a
            callable gets the parameters of ``model.<name>``, or that module. A class of torch's is made ``fused`` if
            all parameters are on a GPU; any other callable is called as it is.
        train_data: an iterable of batches. A pair is ``(inputs, targets)``; else override ``unpack_batch``.
        eval_data: named iterables of batches, each evaluated. An iterable without a name is called "eval".
        eval_at: when a training evaluates them: any of "start" (before the first batch of all), "epoch" (after each),
            "end" (of each training call), and schedules (``every(250)`` counts batches); ``()`` for never.
        epochs: the number of epochs in all; a second ``train()`` continues to that number.
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
        samples_seen: examples in those batches; reading it waits for the device if the batch sizes are tensors there.
        history: the metrics of each epoch and each evaluation.
        run_id: the name of this training in what extensions record: 16 hexadecimal digits, other ones for each object.
        start_step: ``step_num`` as the present or last training call began.
        end_step: what ``step_num`` will be as it ends; None while that is unknown.
        stop_reason: the reason that ``stop`` was given in the last run; None if it was not called.

    Raises:
        InputError: an argument is invalid.
        NonFiniteLoss: a loss was nan or infinite; raised at the latest at the end of the epoch.
    """

    _options = replace(
        Interface._options,
        too_late=TOO_LATE,
        replacing=frozenset({"batch_losses"}),
        checks=dict.fromkeys(LOSSES, require_modified_loss),
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
            batch: a batch as ``train_data`` would give it; with ``Distributed`` the same whole batch in each process,
                or a ``Share`` of it (``train_manager.data.shares``).
            last_batch: the fixture of this name: whether an epoch of yours ends with it.

        Returns:
            The loss, without its graph and still on its device; None if a hook has skipped the batch.
        """
        self._refuse_inside("train_on_batch", "train", "eval", "train_step_batch")
        require_last_batch(last_batch)
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
            epoch = progress.present_epoch
            epoch.requests = epoch.requests.joined(Requests(end_epoch=True))
        elif progress.own is None or progress.feed.is_unfinished or self._store.running is not None:
            # No own batch was trained on, train_steps has left an epoch open, or a hook outside of epochs has called.
            return
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
        refuse_name_of_set(data, self.eval_data)
        sets = self.eval_data if data is None else require_eval_data(data)
        if not sets:
            raise InputError("there is no eval_data to evaluate", cure='pass eval_data={"valid": batches}')
        with self._methods_chosen():
            self.ranks.require_data(None, sets)
            return self._eval_in_run("eval", sets) or {}

    def eval_on_batch(self, batch: Any, *targets: Never) -> EvalResult:
        """Evaluate one batch, as an evaluation set called "batch".

        >>> from train_manager.testing import tiny_manager
        >>> tm = tiny_manager()
        >>> list(tm.eval_on_batch(tm.train_data[0]))
        ['loss']
        """
        self._refuse_inside("eval_on_batch", "train_step_batch", "eval")
        if targets:
            raise two_arguments_error("eval_on_batch", targets[0])
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
        """Replace components of the training for a ``with`` block; they are put back as it ends, also after an error.

        >>> from train_manager.testing import tiny_manager
        >>> tm = tiny_manager(epochs=3)
        >>> with tm.run():
        ...     with tm.phase("head", optimizer=lambda _: torch.optim.Adam(tm.model[2].parameters()), epochs=1):
        ...         result = tm.train()
        ...     result = tm.train()
        >>> tm.step_num, tm.epoch_num
        (12, 3)

        Each argument replaces the constructor's argument of this name. With a new optimizer and no ``lr_schedule`` the
        outer schedule rests. ``epoch_num`` begins at 0 and is put back; ``step_num`` continues. ``stop`` ends the
        training of the phase only, unless it says ``whole_run=True``. For a model without an optimizer, the
        constructor's callable makes one.

        Args:
            name: the fixture ``phase_name``, which is None outside of phases.
            extensions: more extensions, for the time of the phase.
            without: names of extensions that pause: they let go of the objects that they hold, and take them again
                afterwards.

        Raises:
            StageError: a training call or an evaluation is under way.
            InputError: an argument is invalid.
        """
        stages = ("train", "eval", "predict", "train_step_batch")
        self._refuse_inside("phase", *stages, cure="open it around the call: with tm.phase(...): tm.train()")
        given: dict[str, Any] = {"model": model, "loss": loss, "optimizer": optimizer, "lr_schedule": lr_schedule}
        given |= {"train_data": train_data, "eval_data": eval_data}
        given |= {"epochs": epochs, "steps_per_epoch": steps_per_epoch}
        with self._in_run(None):
            # Before the setup changes: these gradients are of the optimizers around the phase.
            self._drop_windows(f"phase {name!r} began")
            # _pausing stands around _level_of_phase: an extension that pauses lets go of the model around the
            # phase, and must find that model again afterwards, not the model of the phase.
            with self._pausing(without), self._level_of_phase(name, given), self._windows:
                with preserve_modes(*self._setup.modules_of_model()), self._adding(extensions):
                    with self.staged("phase"):
                        self._go_on()
                        self._progress.reopens.discard("phase")
                        yield
                        # The losses of train_on_batch in the phase: no epoch looks at them.
                        self._progress.present_epoch.losses.check()
                        self._drop_windows(f"phase {name!r} ended")

    @contextmanager
    def _level_of_phase(self, name: str, given: Mapping[str, Any]) -> Iterator[None]:
        """Put the setup and the progress of a phase in place for a ``with`` block; then those around it come back."""
        program, outer = self._program, self._level
        # A nan from before the phase must not be reported as one of the phase.
        outer.progress.present_epoch.losses.check()
        # The rows so far were measured outside of the phase: their readers must look before phase_name changes.
        self.fixtures["batch_losses"].look()
        setup = outer.setup.of_phase(given, f"phase {program.phase_number + 1}")
        if outer.progress.feed.is_within(setup.train_data):
            outer.progress.feed.let_another_read()
        around, run = self.fixtures["phase_name"], RunState(outer.progress.run.entry)
        phase = program.enter(name, outer)
        call = Call(outer.progress.call.number, self.step_num)
        key = f"phase {program.phase_number}: {' > '.join(phase.of)}"
        epoch_num, findings = phase.end if phase.is_done else 0, outer.progress.findings
        self._level = Level(setup, Progress(run, call, epoch_num, key, findings))
        run.go_on_after(outer.progress.run)  # a run that was stopped trains in none of its phases
        failed, modules = True, None  # until the block has ended without an error
        try:
            # Completed before the checkpoint: nothing is trained in it again, so its own modules get their final state.
            if phase.is_done:
                setup.load_modules(phase.modules)
            self._modify_level(name)
            try:
                yield
            finally:
                self.fixtures["batch_losses"].look()  # while phase_name is still the name of the phase
            self._warn_of_epochs_without_end()
            modules = None if phase.is_done else self._copy_of_own_modules(outer.setup)
            # A stop of the whole run leaves the phase unfinished: a program that resumes continues in it.
            failed = run.stops_run
        finally:
            self._progress.feed.close()  # a generator of batches cleans up now, not when it is garbage-collected
            self._program.leave(self.epoch_num, failed=failed, modules=modules)
            outer.setup.device = self._setup.device  # no component of the phase: `tm.device = ...` in it stays
            self._level = outer
            outer.progress.run.go_on_after(run)  # a stop of the whole run ends the training calls around the phase too
            # The training call that a checkpoint was written in was over before the program opened this phase: the next
            # training call must not continue it.
            outer.progress.interrupted = None
            self._modify_level(around)

    def _copy_of_own_modules(self, around: Setup) -> dict[str, Any] | None:
        """Return a copy of the states of modules that only the present phase has, if checkpoints are to hold them."""
        own = self._setup.own_modules(around)
        # Without a hook that saves checkpoints nothing would read the copy, which takes memory.
        if not own or all(hook.stage != "save_checkpoint" for hook in self._registry.hooks):
            return None
        from train_manager.checkpoints.copies import copy_state

        return cast("dict[str, Any]", copy_state(own))

    def _modify_level(self, phase_name: str | None) -> None:
        """Give the fixtures of the run the values of a phase that begins; or, as a phase ends, those from around it."""
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
        try:
            with self._open_run(entry):
                yield
        except BaseException as error:
            self.ranks.fail(error)
            raise

    @contextmanager
    def _open_run(self, entry: str | None) -> Iterator[None]:
        self._prepare_run(entry)  # before the stage: its pre hooks must not run if a check fails
        # The windows that a checkpoint brings are of a training call: an evaluation before that call leaves them open.
        is_evaluation = entry in EVALUATIONS
        # A literal with all names: `check` and `explain` read the fixtures of the stage from this source.
        given: dict[str, Any] = {
            "model": self.called_model,
            "phase_name": None,
            "epoch_num": self.epoch_num,
            "step_num": self.step_num,
            "update_num": self.update_num,
            "samples_seen": self._counts.samples_seen,
            "start_step": self.step_num,
            "end_step": None,
            "standalone_eval": entry in ("eval", "eval_on_batch"),
            "batch_losses": BatchLosses(),
        }
        if self.train_dir is not None:
            given["train_dir"] = self.train_dir
        if self.device is not None:
            given["device"] = self.device
        with (
            preserve_modes(*self._setup.modules_of_model()),
            nullcontext() if is_evaluation else self._windows,
            self._ensure_run_ends(),
            self.staged("run", given),
        ):
            self._windows.gradients = self.ranks.gradients  # only now: a hook around the run has joined the processes
            if not self._has_run:
                # Before a checkpoint is loaded, whose weights this would overwrite.
                self.call_by_name(self.initialize_params)
                self._has_run = True
            self._load_checkpoint()
            self._modify_counts()  # a post hook of load_checkpoint may have set tm.step_num
            step_num = self.step_num
            try:
                yield
            except BaseException:
                self._progress.own = None  # an error drops the epoch of train_on_batch, as it drops one of train
                raise
            self._progress.present_epoch.losses.check()  # the last losses of train_on_batch: no epoch looks at them
            self._warn_of_epochs_without_end()
            if self.step_num > step_num:  # in a run that only evaluates, no hook of the training has made anything
                self._tell_of_awaited_attributes()
            if not is_evaluation:
                self._drop_windows("the run ended")
        warn_of_hooks_that_never_ran(self._never_reached())

    @contextmanager
    def _ensure_run_ends(self) -> Iterator[None]:
        """Close the stage ``run`` if Ctrl-C has come in the lines that end it, so that no run is left half open."""
        try:
            yield
        finally:
            run = self._store.open.get("run")
            if isinstance(run, Stage):
                run.end_if_open()

    def _drop_windows(self, when: str) -> None:
        """End all windows, and warn of gradients that no step has used, if no checkpoint has them."""
        # A program on its way to the place of its checkpoint gets them back there; a program that a signal ends has
        # them in the checkpoint of its last step.
        ends_saved = self._asked_from_outside is not None and self._progress.run.saved_at == self.step_num
        self._windows.drop_all(None if self._program.state is not None or ends_saved else when)

    @skippable("load_checkpoint")
    def _load_checkpoint(self) -> None:
        before = self._program
        with self.staged("load_checkpoint", {"checkpoint_loaded": False}):
            self._modify_counts()  # the counts that a pre hook has loaded, for post hooks
        if self._program is not before:  # a hook has loaded a state
            self._keep_changes_to_loaded()

    def _go_on(self) -> None:
        """Restore the loaded state once more, at the place of the program in which it was saved.

        What the program did on its way through completed phases and training calls (another head, other weights or
        learning rates) is undone.
        """
        program = self._program
        if program.state is None or program.is_in_completed:
            return
        whole, of_phase = program.take_state(), program.state_on_the_way()
        if whole is not None:
            self._tell(self._restore(whole, strict=program.strict, is_whole=True, is_there=True))
        elif of_phase is not None and self._progress.interrupted is None:
            # A phase around the place of the checkpoint has opened, with an epoch of its own that was interrupted.
            left = self._left_to_train(self._level, of_phase, program.state)
            self._level.load_state_dict(of_phase, left, is_there=False, ranks=self.ranks)
        # Nothing was trained since the load, so a request must not save this place again. The open phases count in it.
        self._progress.saved_at = self._place_of_checkpoint()
        self._modify_counts()

    def _modify_counts(self) -> None:
        """Give the fixtures of the run the counts that were loaded."""
        self.fixtures.modify("epoch_num", self.epoch_num)
        self.fixtures.modify("step_num", self.step_num)
        self.fixtures.modify("update_num", self.update_num)
        self.fixtures.modify("samples_seen", self._counts.samples_seen)

    def _save_checkpoint(self) -> None:
        """Save a checkpoint, at the loop's point of decision; nothing happens if none of the extensions does so."""
        run = self._progress.run
        run.requests = run.requests.without("save")  # before the hooks, of which one may ask for the next checkpoint
        if self._open_save_checkpoint():
            run.saved_at = self.step_num
        # Also if a hook has skipped the stage: else the loop would try to save the same step again and again.
        self._progress.saved_at = self._place_of_checkpoint()

    @skippable("save_checkpoint")
    def _open_save_checkpoint(self) -> Any:
        with self.staged("save_checkpoint", {"checkpoint_saved": False}) as stage:
            stage.keep("checkpoint_saved")  # the stage is the place for hooks that save one: tm.state_dict()
        return stage.kept["checkpoint_saved"]

    def _saves_between_epochs(self) -> bool:
        """Return whether a requested checkpoint must be saved outside of an epoch."""
        # Not if the epoch was stopped half-way: its place in the data is lost as it closes, so a program that resumes
        # would train on its batches twice. Nor if it was paused and saved there: a second checkpoint has nothing new.
        progress = self._progress
        is_saved = progress.saved_at == self._place_of_checkpoint()
        return progress.partial is None or (progress.feed.is_unfinished and not is_saved)

    # ---- training, from the outside in -------------------------------------------------------------------------------

    def _make_call(
        self, entry: str, epochs: int | None = None, steps: int | None = None, evaluates: bool = True
    ) -> TrainResult:
        """Train epochs or steps, in the run that is open or in a run of its own, and return the result."""
        began = perf_counter()
        with self._methods_chosen(entry):
            self._require_ready(entry, epochs)
            # Else a training call that evaluates nothing would return the results of the training call before it.
            self._progress.forget_results(entry)
            # None if a hook has skipped the run.
            before, rest = self._train_rest_of_call(entry, epochs, steps, evaluates) or (self._progress_counts(), None)
        if entry == "train" and rest == 0 and not self._program.is_on_its_way:
            what = f"train() has nothing to do: {self.epoch_num} of {self.epochs} epochs are done"
            warnings.warn(f"{what} (raise `epochs`, or call train_epochs(n))", stacklevel=users_level())
        run = self._progress.run
        epochs, steps, updates = (now - then for now, then in zip(self._progress_counts(), before, strict=True))
        if steps and not self._progress.call.has_updated and isinstance(self.model, nn.Module):
            what = f"train_batch has not called self.update(loss) in {steps} batches, so hooks of train_backward and"
            text = (
                f"{what} train_optimizer_step did not run; steps of its own, if it makes any, are seen by no extension"
            )
            warnings.warn(text, stacklevel=users_level())
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

    def _progress_counts(self) -> tuple[int, int, int]:
        return self.epoch_num, self.step_num, self.update_num

    @skippable("run")
    def _train_rest_of_call(
        self, entry: str, epochs: int | None, steps: int | None, evaluates: bool
    ) -> tuple[tuple[int, int, int], int | None]:
        """Train, and return the counts before the first step, and how many epochs were left to train."""
        with self._in_run(entry):  # which may load a checkpoint, and so move the counts
            if steps is not None:
                steps = self._rest_of_call(entry, steps)
            elif entry == "train_epoch":
                # Not in the call log: a loop of the program's own makes as many of these calls as are left.
                self._go_on()
                self._progress.forget_stop()  # and it calls stop again itself
            else:
                epochs = self._rest_of_call(entry, self.epochs if entry == "train" else epochs or 0)
            before = self._progress_counts()  # after the load, whose steps this call has not trained
            if self._program.trains:
                self._train(entry, epochs, steps, self.eval_at if evaluates else NEVER)
            return before, epochs

    def _rest_of_call(self, entry: str, n: int) -> int:
        """Return how many steps or epochs a call is still to train, if the program makes it again."""
        program, before = self._program, self._program.state
        repeats = program.repeats(entry, n)
        # `repeats` has dropped the state, as this training call was not made before the checkpoint: the program is
        # another one, so it continues from what it has loaded so far.
        if before is not None and program.state is None:
            self._tell_of_another_program(before)
        self._go_on()  # before the count, which the state brings
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

    @skippable("train")
    def _train(self, entry: str, epochs: int | None, steps: int | None, eval_at: EvalAtPoints) -> None:
        progress, resting = self._progress, self._setup.resting_modules()
        with self.mode(training=True), self._collector, self._in_call(entry, epochs, steps, eval_at):
            progress.call.resting = resting
            with self.staged("train"):
                self._look_at_last_batch()
                # Only now: schedules (@every) read `reopens` as the stage opens, and must not count it a second time.
                progress.reopens.discard("train")
                if not self._reopens_epoch():
                    self._load_again()
                if eval_at.start and self.epoch_num == 0 and self.step_num == progress.first_step:
                    self._evaluate()
                for epochs_after in self._epochs_to_train(epochs):
                    done = self.epoch_num
                    self._train_step_epoch(epochs_after)
                    self._evaluate_and_save(evaluates=eval_at.epoch and self.epoch_num > done)
                self._evaluate_and_save(evaluates=eval_at.end, call_ends=True)
                self._set_end(self.step_num)  # for post hooks of train, also if a stop has ended it early

    def _look_at_last_batch(self) -> None:
        found = check_last_batch(self.model, self.train_data, self.ranks.place.number, self._frozen_parameter_ids())
        if found:
            self.add_finding(*found)

    @contextmanager
    def _in_call(self, entry: str, epochs: int | None, steps: int | None, eval_at: EvalAtPoints) -> Iterator[None]:
        """Keep ``start_step`` and ``end_step`` of a training call from before its first hook until after its last."""
        progress, data, per_epoch = self._progress, self.train_data, self.steps_per_epoch
        if progress.interrupted is None or progress.interrupted.entry != entry:
            self._program.again = {}  # another call, whose pre hooks make their own
        resting = progress.begin_call(entry, self.step_num, steps, evaluates=eval_at is not NEVER)
        self._setup.rest(resting)  # submodules that a hook had set to eval mode before the checkpoint
        self.fixtures.modify("model", self.called_model)  # which may have been replaced while a run is held open
        self.fixtures.modify("start_step", progress.call.start_step)
        progress.call.end_epoch = None if epochs is None else self.epoch_num + epochs
        length = epoch_length(data, per_epoch)
        if epochs is not None and length is not None:
            # Less the batches of an epoch that the last training call has left unfinished.
            self._set_end(self.step_num + epochs * length - progress.feed.batches_done(data, per_epoch))
        else:
            self._set_end(progress.call.step_limit)
        try:
            yield
        finally:  # also after an error: the run may continue, and Accumulate asks for both in batches of train_on_batch
            progress.call.step_limit = None
            self._set_end(self.step_num)

    def _expect_end(self, epochs_after: int, first_step: int | None) -> None:
        """Note anew where the training call will end, as an epoch ends.

        Args:
            epochs_after: how many epochs follow.
            first_step: ``step_num`` as the epoch began; None if it began in an earlier training call.
        """
        length = epoch_length(self.train_data, self.steps_per_epoch)
        if length is not None:
            self._set_end(self.step_num + epochs_after * length)
        elif first_step is not None and not self._progress.epoch.requests.end_epoch:
            # The length is unknown: the coming epochs are taken to be as long as this one, which had all its batches.
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
        progress.meet_epoch(self.train_data)  # before the pre hooks, which may end the epoch
        done = progress.feed.batches_done(self.train_data, self.steps_per_epoch)
        with self.staged("train_step_epoch", {"batches_done": done}) as stage:
            first_step = None if progress.feed.is_unfinished else self.step_num
            progress.reopens.discard("train_step_epoch")
            self._load_again()
            # As schedules and pre hooks have left them. Not in the rest of an epoch: a resume would tell it earlier.
            if first_step is not None and (below := find_rates_below_zero(self.optimizers)):
                self.add_finding(*below)
            # After the pre hooks, which may have replaced the data.
            progress.begin_epoch(self.train_data, is_last=epochs_after == 0)
            is_complete = self._train_all_batches()
            progress.epoch.batches = progress.feed.batch_num
            row = self._close_epoch(stage, is_complete)
            if is_complete and epochs_after is not None:
                self._expect_end(epochs_after, first_step)
        self._add_result(row, stage.kept["train_result"])

    def _end_own_epoch_in_run(self) -> None:
        # The run is open already. The `with` is here for the check, which reads from the source which stages nest.
        with self._in_run("end_epoch"):
            self._end_own_epoch()
            if self._decide().save:
                self._save_checkpoint()

    @skippable("train_step_epoch")
    def _end_own_epoch(self) -> None:
        """End the epoch of a loop of the program's own, in which nothing is left to train."""
        with self.staged("train_step_epoch", {"batches_done": self._progress.present_epoch.batches}) as stage:
            row = self._close_epoch(stage, is_complete=True)
        self._add_result(row, stage.kept["train_result"])

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
            self.add_finding(Finding("skipped batches", "note", what, numbers=numbers))

    def _complete_epoch(self) -> None:
        """Step the schedules, and count the epoch, before its post hooks."""
        step_schedulers(self.lr_schedule)  # after the losses were checked: an epoch with a nan must change no rate
        self._progress.epoch_num += 1
        self._progress.run.has_ended_epoch = True
        self.fixtures.modify("epoch_num", self._progress.epoch_num)

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
                try:
                    batch = feed.pull()
                except Exception as error:
                    # A cluster sends its signal to the workers of a DataLoader too; their end reaches the loop as an
                    # error of the loader, perhaps before the signal reaches this process.
                    wait_for_the_signal_of_a_worker(error)
                    if self._asked_from_outside is None:
                        raise
                    batch = END  # no more data: the run ends here as a stop ends it, and not with the loader's error
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

    @skippable("run")
    def _train_on_batch_in_run(self, batch: Any, last_batch: bool) -> Tensor | None:
        # With gradients and in train mode, as the loop around this call may just have evaluated by hand.
        with self._in_run("train_on_batch"), torch.enable_grad(), self._collector:
            for module in self._setup.modules_of_model():
                # train() walks over all submodules with a call for each, so it is left out if they are all training.
                if not all(submodule.training for submodule in module.modules()):
                    self._progress.call.resting += self._setup.resting_modules()
                    module.train()  # until the run ends, which restores the modes
            examples = None
            if self._decides or batch.__class__ is Share:
                batch, examples = share_of_batch(batch, self.ranks.place, self.train_data, self._spreads)
            number = self._progress.begin_own_batch(is_last=last_batch)
            step = Step(number, examples, is_own=True, is_own_last=last_batch)
            loss = self._train_or_drop(self._setup.on_device(batch), step)
            requests = self._decide()
            if requests.end_epoch and not self._progress.feed.is_unfinished:
                self._end_own_epoch()
                requests = self._decide()  # hooks of the epoch may have requested a checkpoint
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
                self.decide(SKIP_BATCH)
                progress.present_epoch.skipped += 1
                return None
            is_skipped = isinstance(error, SkipBatch)
            # A pre hook has skipped the batch before `_agree_on_batch`, which the other processes wait for. After an
            # error they do not: `ranks.fail` tells them.
            if is_skipped and not step.skip_is_decided:
                self.decide(SKIP_BATCH)
            elif is_skipped and not (step.is_left_out or step.is_counted) and self.ranks.place is not ALONE:
                raise skipped_too_late_error(self.fixtures.path) from error
            # A SkipBatch of a post hook comes after the step: only the remaining hooks are skipped, and the gradients
            # of a batch inside an open window stay.
            if not (is_skipped and step.is_counted):
                self._windows.drop(step.backwards)
            if not is_skipped:
                raise
            if not step.is_counted:
                progress.present_epoch.skipped += 1
            return None
        finally:
            progress.step = NO_STEP

    def _train_step_batch(self, batch: Any, step: Step) -> Tensor | None:
        feed = self._progress.feed
        with self.staged(
            "train_step_batch",
            {"batch": batch, "update_ends": True},
            seldom={  # fixtures that few hooks ask for: their cells are written only if one does
                "batch_num": step.batch_num,
                "datasource_name": feed.datasource_name,
                "update_begins": self._windows.begin,
                "losses": step.losses,
            },
        ):
            done = self._counts.step_num
            is_clocked = not done % CLOCKED or done == self._progress.call.start_step
            clock = StepClock(self._store) if is_clocked else None  # after the pre hooks, whose time does not count
            region = self._region()
            unpacked, size = self._unpack(feed.data_name, seldom=region is not None)
            seen = size
            if self._decides:
                size, seen = self._agree_on_batch(step, size)
            if region is not None or isinstance(self.model, nn.Module):
                try:
                    self._train_on_unpacked(region, unpacked, step)
                except Exception as error:
                    add_cure(error, self._store.computed)
                    raise
            else:
                self.fixtures["loss"] = require_scalar_loss(self.model.train_step(self.fixtures["batch"]))
            loss = self._count_step(step, size, seen)  # before the post hooks: to them the batch is counted in step_num
            if clock is not None:
                self._step_seconds.append(clock.seconds())
        return loss

    def _train_on_unpacked(self, region: Region | None, unpacked: Unpacked, step: Step) -> None:
        """Train on a batch: in a region; or in ``train_batch``, which opens the inner stages."""
        if region is not None:
            self._progress.call.has_updated = True
            loss = region.forward(unpacked, self._chosen, step)
            # The model or the loss has replaced a component or added a hook: its stages would be open by now.
            if self._setup.region is not region or region.version != self._store.version:
                raise changed_inside_error(self.fixtures.path)
            region.update(loss, self._forward_again, step)
            return
        new = self._setup.region
        if new is None or new.reason_to_open:
            # The stages stay open in the batches to come too. Only an own train_batch can add losses around forward().
            around = self._collecting(step) if new is not None and new.collects else nullcontext()
        else:
            around = self._watch_first_batch(new)
        with around:
            returned = self._chosen.train_batch()
        if returned is not None:
            raise returned_value_error(returned, "train_batch")

    def _agree_on_batch(self, step: Step, size: Any) -> tuple[Any, Any]:
        """Decide with all processes whether the batch is skipped, and how many examples it has here and in all.

        The pre hooks of this process have not skipped the batch, else it would not come here.
        """
        # A batch without an example of its own has a row that stands in. An own get_true_batch_size may count otherwise
        # than in rows, so the number of rows is not taken from the share.
        size = 0 if step.examples_here == 0 else size
        step.skip_is_decided = True
        requests = self.decide(Requests(examples=size))
        if requests.skip_batch or requests.data_ended:
            epoch = self._progress.present_epoch
            epoch.requests = epoch.requests.joined(Requests(data_ended=requests.data_ended))
            step.is_left_out = True
            raise SkipBatch
        self.fixtures.modify("true_batch_size", size)
        self.fixtures.modify("global_batch_size", requests.examples)
        return size, requests.examples

    # ---- evaluation, from the outside in -----------------------------------------------------------------------------

    @skippable("run")
    def _eval_in_run(self, entry: str, eval_data: Mapping[str, Iterable[Any]]) -> dict[str, EvalResult] | None:
        with self._in_run(entry):
            results = self._eval(eval_data)
            # Not eval_on_batch, whose result is of one batch; and not in a program that resumes and is still on its
            # way, as the loaded history has this evaluation already.
            if entry == "eval" and not self._program.has_calls_left:
                self._record_evaluation(results)
            return results

    def _evaluate(self) -> None:
        """Evaluate for the loop, which does it at most once per step."""
        run = self._progress.run
        # Before the hooks, as one of them may request the next evaluation.
        run.requests = run.requests.without("evaluate")
        if run.evaluated_at != self.step_num:
            self._record_evaluation(self._eval(self.eval_data))
            run.evaluated_at = self.step_num  # after it: an evaluation that has failed may be repeated

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
            batches = eval_batches(data, data_name, self.epoch_num, is_within=is_within)
            had_loss = [  # for each batch True or False; None if a hook has skipped it
                self._eval_step_batch(self._setup.on_device(batch), mean_loss, data_name, counts=counts, is_own=is_own)
                for batch, counts in eval_shares(batches, self.ranks, data, data_name)
            ]
            found = self.ranks.sum([*mean_loss.totals(), had_loss.count(False), had_loss.count(True)])
            total, weight, without, having = found
            has_none = without and not having  # an own eval_batch has set no loss in any batch
            self.fixtures["eval_result"] = {} if has_none else {"loss": mean_of(total, weight)}
            # The fixture dies with the stage; stage.kept has its value after the block, as the post hooks left it.
            stage.keep("eval_result")
        return cast(EvalResult, stage.kept["eval_result"])

    @skippable("eval_step_batch")
    def _eval_step_batch(
        self, batch: Any, mean_loss: WeightedMean, data_name: str, *, counts: bool, is_own: bool
    ) -> bool:
        """Evaluate a batch, perhaps in an own ``eval_batch``; return whether it has a loss."""
        with self.staged("eval_step_batch", {"batch": batch, "losses": Losses()}):
            self._unpack(data_name)  # after the pre hooks, which may have modified the batch
            if not counts:  # its examples count in another process
                self.fixtures.modify("true_batch_size", 0)
            if isinstance(self.model, nn.Module):
                # Terms that an own eval_batch adds beside forward() are kept by name, but are in no loss: the loss that
                # it sets in the fixtures is complete.
                self._collector.losses = OwnLosses(self.fixtures["losses"]) if is_own else None
                try:
                    returned = self._chosen.eval_batch()
                except Exception as error:
                    add_cure(error, self._store.computed)
                    raise
                finally:
                    self._collector.losses = None
                if returned is not None:
                    raise returned_value_error(returned, "eval_batch")
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
        # Each call has data of its own, whose batches may be made of other parts than those of the call before.
        self._progress.run.structures.pop("data", None)
        with self._evaluating(), self.staged("predict") as stage:
            batches = eval_batches(data, "data", self.epoch_num, is_within=self._progress.feed.is_within(data))
            predictions = [self._predict_step_batch(self._setup.on_device(batch)) for batch in batches]
            self.fixtures["predictions"] = join_predictions([one for one in predictions if one is not None])
            stage.keep("predictions")
        return stage.kept["predictions"]

    @skippable("predict_step_batch")
    def _predict_step_batch(self, batch: Any) -> Any:
        with self.staged("predict_step_batch", {"batch": batch}) as stage:
            self.fixtures["inputs"] = self._inputs_and_targets("data")["inputs"]
            try:
                prediction = self._chosen.eval_model_forward()
            except Exception as error:
                add_cure(error, self._store.computed)
                raise
            self.fixtures["prediction"] = require_prediction(prediction, self.model, type(self), "eval_model_forward")
            stage.keep("prediction")  # stage.kept has it after the block, as the post hooks have left it
        return stage.kept["prediction"]

    # ---- methods of a step without a stage ---------------------------------------------------------------------------

    def _inputs_and_targets(self, data_name: str) -> Unpacked:
        """Return the inputs and the targets of the batch, as its pre hooks have left it."""
        as_usual = self._chosen.unpacks_as_usual
        unpacked = (
            unpack(self._store.cells["batch"].value) if as_usual else require_unpacked(self._chosen.unpack_batch())
        )
        self._progress.run.structures[data_name].check(unpacked, self._counts.step_num + 1)
        return unpacked

    def _unpack(self, data_name: str, *, seldom: bool = False) -> tuple[Unpacked, Any]:
        """Define inputs, targets and the batch size, and return them.

        Args:
            data_name: the name of the data in errors.
            seldom: define them for hooks only: the loop reads what this method returns.
        """
        rest = unpacked = self._inputs_and_targets(data_name)
        if self._chosen.unpacks_as_usual:
            size = require_batch_size(count_rows(self._store.cells["batch"].value, self._spreads, unpacked))
        else:
            self.fixtures.define_all(unpacked)  # at once: an own get_true_batch_size may ask for them
            size, rest = require_batch_size(self._chosen.get_true_batch_size()), {}
        if "train_step_batch" in self._store.open:
            self.fixtures.define_all({**rest, "true_batch_size": size, "global_batch_size": size}, seldom=seldom)
        else:
            self.fixtures.define_all({**rest, "true_batch_size": size})
        return unpacked, size

    def _count_step(self, step: Step, size: Any, seen: Any) -> Tensor | None:
        """Move the counts, before the post hooks of the batch; return its loss, as the last hook has left it.

        Args:
            step: the state of the batch.
            size: the examples of the batch in this process.
            seen: those in all processes.
        """
        counts, cells, loss = self._counts, self._store.cells, step.forward_loss
        # A cell without an owner: no hook has asked for the fixture, so it is as it was defined. Otherwise a hook may
        # have modified it.
        examples = size if cells["true_batch_size"].owner is None else self._store.cells["true_batch_size"].value
        is_whole = seen is size
        seen = seen if cells["global_batch_size"].owner is None else self._store.cells["global_batch_size"].value
        loss = self._loss_without_forward(step) if loss is None else self._store.cells["loss"].value
        kept = self._progress.count_losses(loss, step.own, counts.step_num + 1, examples)
        step.is_counted = True
        self._windows.ended = self._store.cells["update_ends"].value
        counts.step_num += 1
        counts.samples_seen = counts.samples_seen + seen  # not `+=`: it may be a tensor that a hook has kept
        self._store.cells["step_num"].value = counts.step_num
        self._store.cells["samples_seen"].value = counts.samples_seen
        rows: BatchLosses = self._store.cells["batch_losses"].value
        if rows.appends:
            is_asked = cells["datasource_name"].owner is not None  # as above
            name = self._store.cells["datasource_name"].value if is_asked else self._progress.feed.datasource_name
            rows.add(kept, counts.step_num, examples if is_whole else seen, name, self._losses_of(step))
        return loss

    def _loss_without_forward(self, step: Step) -> Tensor | None:
        """Return the loss of a batch without ``forward``: the loss that ``train_batch`` set, or that of its updates."""
        loss: Tensor | None = self.fixtures.get("loss")
        if loss is not None:
            return require_scalar_loss(loss)
        if step.own is not None and step.own.by_optimizer:
            loss = self.fixtures["loss"] = step.own.sum_of_updates()
            # The sum over a generator and a critic says nothing: tables and curves show the loss of each in its place.
            step.own.is_shown_apart = len(self.optimizers) > 1
        return loss

    @contextmanager
    def _evaluating(self) -> Iterator[None]:
        """Leave modes, random states and gradients as they were."""
        # An eval_batch may run a backward pass (attacks on the inputs): its gradients must not enter an open window.
        with self.mode(training=False), preserve_random_state(), preserve_gradients(self._setup.parameters()):
            with self._collector:
                yield

    # ---- the history -------------------------------------------------------------------------------------------------

    def _place(self) -> dict[str, Any]:
        """Return the epoch, the step and the phase, with which each row of the history begins."""
        phase = self.fixtures["phase_name"]
        place = {"epoch": self.epoch_num, "step": self.step_num}
        return place if phase is None else {**place, "phase": phase}

    def _record_epoch(self, metrics: Mapping[str, float], is_complete: bool) -> dict[str, Any]:
        """Add the present epoch to the history, and return its row; a part without a batch is not added."""
        progress, epoch = self._progress, self._progress.epoch
        row = {**self._place(), "seconds": epoch.seconds, **metrics}
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

    def _record_evaluation(self, results: Mapping[str, EvalResult] | None) -> None:
        """Add an evaluation to the history."""
        place = self._place()
        if self.fixtures["standalone_eval"]:
            place["standalone"] = True
        self.history.add_evaluation(results or {}, place)
        names = [name for result in (results or {}).values() for name in result]
        refuse_metrics_of_places("eval_result", names, self._registry.hooks)
