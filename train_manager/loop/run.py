"""A run and the phases in it: what is checked before, and what is loaded and saved between its steps."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from typing import Any, cast

from torch import nn

from train_manager.core.extension import Extension, Extensions, free_name, name_extensions
from train_manager.core.hooks import Hook
from train_manager.core.scope import LIVE
from train_manager.core.stage import Stage
from train_manager.data.cures import say_that_train_batch_lacks_a_prediction
from train_manager.data.random_state import seed_all
from train_manager.data.shares import ALONE
from train_manager.files.train_dirs import make_train_dir
from train_manager.loop.arguments import (
    require_arguments_for_hooks,
    require_finite_epochs,
    require_ready_to_train,
    warn_of_hooks_that_never_ran,
    warn_of_idle_hooks,
)
from train_manager.loop.attributes import Model
from train_manager.loop.batch_losses import BatchLosses
from train_manager.loop.extension_attributes import (
    note_tensors,
)
from train_manager.loop.modes import preserve_modes
from train_manager.loop.parameter_check import ParameterCheck
from train_manager.loop.progress import EVALUATIONS
from train_manager.loop.saving import Saving
from train_manager.loop.setup import Setup
from train_manager.loop.skip import skippable
from train_manager.signals import where_it_goes_on
from train_manager.telling.errors import CheckError, StageError
from train_manager.telling.source_locations import users_level
from train_manager.telling.tracebacks import hide_own_frames


class Run(Saving[Model]):
    """The stages around all training calls, evaluations and predictions."""

    # ---- checked before a run ----------------------------------------------------------------------------------------

    def _require_ready(self, entry: str, epochs: int | None) -> None:
        self._refuse_inside(entry, "train", "eval", "predict", "train_step_batch")
        if self._progress.run.requests.stops and "run" in self.fixtures.path:
            warnings.warn(
                f"this run was stopped ({self.stop_reason}), so nothing more is trained in it", stacklevel=users_level()
            )
        self._setup.require_optimizers()
        if epochs is not None:
            require_finite_epochs(self.train_data, self.steps_per_epoch)
        passes = epochs if epochs is not None and self.steps_per_epoch is None else 1
        require_ready_to_train(
            self.model, bool(self.optimizers), self.train_data, passes, self.eval_data, (epochs or 0) + 1
        )
        self.ranks.require_data(self.train_data, self.eval_data)

    def _prepare_run(self, entry: str | None) -> None:
        self._registry.use_rank(self.ranks.place.rank)  # before the check, which looks at the hooks of this process
        if entry not in self._checked:  # each entry opens other stages, so each is checked once
            try:
                self._checked[entry] = self._check(entry, "before the first stage", outside=entry is None)
            except CheckError as error:
                say_that_train_batch_lacks_a_prediction(error)
                raise
        if not isinstance(self.model, nn.Module):
            warn_of_idle_hooks(self._registry.hooks, self.model)
        given = {"train_dir": self.train_dir, "device": self.device}
        require_arguments_for_hooks(self._registry.hooks, given, [one.name for one in self._registry.providers])
        if self.train_dir is not None and not self.ranks.place.rank:  # only rank 0 writes there
            make_train_dir(self.train_dir)
        if self.seed is not None and not self._has_run:
            seed_all(self.seed)
        if not self._has_run:
            self._setup.note()  # before a hook can change options or freeze parameters
        for one in self._registry.extensions.values():
            note_tensors(one)
        self._asked_from_outside = None  # a signal of the last run must not end this one
        self._progress.begin_run(entry, self.step_num)

    def _approve_extensions(self) -> None:
        super()._approve_extensions()
        if "run" in self.fixtures.path:  # the check at the start of the run has not seen these extensions
            for added in self._registry._added.values():
                note_tensors(added.extension)
            joined = [getattr(one.extension, "joined", None) for one in self._registry._added.values()]
            if any(one is not None and one.gradients is None for one in joined):
                what = "Distributed was added while a run is open, so its processes have not begun the run together"
                raise StageError(
                    what, stages=self.fixtures.path, cure="add it before the run: extensions=[Distributed()]"
                )
            entry, held = self.entered_by, self.entered_by is None
            self._checked[entry] = self._check(None, "as an extension was added or removed", outside=held)

    def _warn_of_epochs_without_end(self) -> None:
        """Warn, once, of schedules by epoch that stand still in a loop of the program's own."""
        run, batches = self._progress.run, 0 if self._progress.own is None else self._progress.own.batches
        present = {name: one for name, one in self._registry.extensions.items() if name not in self._registry.paused}
        # An extension with a schedule by epoch has this method: whether it still waits for an epoch after this one.
        waits = {name: getattr(one, "waits_for_epoch", None) for name, one in present.items()}
        extensions = [name for name, waits_for in waits.items() if waits_for is not None and waits_for(self.epoch_num)]
        names = [*([] if self.lr_schedule is None else ["lr_schedule"]), *extensions]
        is_loop = batches > 1  # a single call of train_on_batch may be a trial
        if is_loop and names and not run.has_ended_epoch and "epochs" not in self._warned_of:
            self._warned_of.add("epochs")
            what = f"the run ends after {batches:,} batches of train_on_batch and no epoch"
            text = f"{what}, so what counts epochs has stood still: {' and '.join(map(repr, names))}"
            warnings.warn(f"{text} (call tm.end_epoch() where an epoch of yours ends)", stacklevel=users_level())

    def _never_reached(self) -> list[Hook]:
        """Return the hooks of stages that the check has not found in the source, and that have not opened so far."""
        if not any(self._checked.values()):
            return []
        return [hook for hook in self._unopened if hook.stage not in self._store.plans]

    def _check_once(self) -> None:
        """Check nothing as the first stage opens: ``_prepare_run`` checks each run."""

    # ---- a run -------------------------------------------------------------------------------------------------------

    def _in_run(self, entry: str | None) -> AbstractContextManager[None]:
        """Join the run that is open; else open one, entered by the method of that name."""
        if entry not in EVALUATIONS:
            self._look_at_parameters()
        return nullcontext() if "run" in self.fixtures.path else self._new_run(entry)

    def _look_at_parameters(self, *, ends: bool = False) -> None:
        """Have the check of the present components among the extensions until it knows, and none of others.

        Args:
            ends: the run has ended, so there must be none.
        """
        setup, there = self._setup, [one for one in self.extensions.values() if type(one) is ParameterCheck]
        check = setup.parameter_check
        # A model that is not a module does its steps by itself.
        looks = self.check_parameters and isinstance(setup.model, nn.Module) and not check.is_done(setup.optimizers)
        wanted = [check] if looks and not ends else []
        for one in there:
            if one not in wanted:
                self.remove_extension(one)
        for one in wanted:
            if one not in there:
                self.add_extension(one)

    @contextmanager
    def _new_run(self, entry: str | None) -> Iterator[None]:
        try:
            with self._open_run(entry):
                yield
        except BaseException as error:
            if isinstance(error, KeyboardInterrupt) and entry not in EVALUATIONS:
                if self._asked_from_outside is not None:
                    error.__notes__ = []  # they name Checkpoints.around_run, which has raised it after the last step
                if not self._progress.run.end_is_told:
                    then = where_it_goes_on(self.step_num, self._progress.run.saved_at)
                    error.add_note(f"stopped at step {self.step_num}; {then}")
            hide_own_frames(error)
            self.ranks.fail(error)
            raise
        finally:
            self._look_at_parameters(ends=True)

    @contextmanager
    def _open_run(self, entry: str | None) -> Iterator[None]:
        self._prepare_run(entry)  # before the stage: its pre hooks must not run if a check fails
        # The windows that a checkpoint brings are of a training call: an evaluation before that call leaves them open.
        is_evaluation = entry in EVALUATIONS
        # A literal with all names: `check` and `explain` read the fixtures of the stage from this source.
        given: dict[str, Any] = {
            "model": LIVE,
            "phase_name": LIVE,
            "epoch_num": LIVE,
            "step_num": LIVE,
            "update_num": LIVE,
            "samples_seen": LIVE,
            "start_step": LIVE,
            "end_step": LIVE,
            "standalone_eval": entry in ("eval", "eval_on_batch"),
            "batch_losses": BatchLosses(),
        }
        if self.train_dir is not None:
            given["train_dir"] = self.train_dir
        if self.device is not None:
            given["device"] = LIVE
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
            self._progress.run.first_step = self.step_num
            try:
                yield
            except BaseException:
                self._progress.own = None  # an error drops the epoch of train_on_batch, as it drops one of train
                raise
            finally:
                self._progress.run.is_ending = True
            self._progress.present_epoch.losses.check()  # the last losses of train_on_batch: no epoch looks at them
            self._warn_of_epochs_without_end()
            # In a run that only evaluates, no hook of the training has made anything.
            if self._progress.run.has_trained(self.step_num):
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

    # ---- checkpoints -------------------------------------------------------------------------------------------------

    @skippable("load_checkpoint")
    def _load_checkpoint(self) -> None:
        before = self._program
        with self.staged("load_checkpoint", {"checkpoint_loaded": False}):
            pass  # the stage is the place for hooks that load one: tm.load_state_dict(state)
        if self._program is not before:  # a hook has loaded a state
            self._keep_changes_to_loaded()

    def _restore_again(self) -> None:
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

    # ---- a phase -----------------------------------------------------------------------------------------------------

    @contextmanager
    def _phase(
        self, name: str, given: Mapping[str, Any], extensions: Extensions | None, without: Iterable[str]
    ) -> Iterator[None]:
        """Replace components for a ``with`` block; let extensions pause, and add others."""
        stages = ("train", "eval", "predict", "train_step_batch")
        self._refuse_inside("phase", *stages, cure="open it around the call: with tm.phase(...): tm.train()")
        with self._in_run(None):
            # Before the setup changes: these gradients are of the optimizers around the phase.
            self._drop_windows(f"phase {name!r} began")
            # _pausing stands around _level_of_phase: an extension that pauses lets go of the model around the
            # phase, and must find that model again afterwards, not the model of the phase.
            with self._pausing(without), self._level_of_phase(name, given), self._windows:
                with preserve_modes(*self._setup.modules_of_model()), self._adding(extensions):
                    with self.staged("phase"):
                        self._restore_again()
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
        phase = program.enter(name, outer)
        key = f"phase {program.phase_number}: {' > '.join(phase.of)}"
        self._level = outer.inner(setup, key, phase.end if phase.is_done else 0, self.step_num)
        failed, modules = True, None  # until the block has ended without an error
        try:
            # Completed before the checkpoint: nothing is trained in it again, so its own modules get their final state.
            if phase.is_done:
                setup.load_modules(phase.modules)
            try:
                yield
            finally:
                self.fixtures["batch_losses"].look()  # while phase_name is still the name of the phase
            self._warn_of_epochs_without_end()
            modules = None if phase.is_done else self._copy_of_own_modules(outer.setup)
            # A stop of the whole run leaves the phase unfinished: a program that resumes continues in it.
            failed = self._progress.run.stops_run
        finally:
            self._progress.feed.close()  # a generator of batches cleans up now, not when it is garbage-collected
            self._program.leave(self.epoch_num, failed=failed, modules=modules)
            outer.go_on_after(self._level)
            self._level = outer
            self._look_at_parameters()  # now: the check of the phase holds its parameters

    def _copy_of_own_modules(self, around: Setup) -> dict[str, Any] | None:
        """Return a copy of the states of modules that only the present phase has, if checkpoints are to hold them."""
        own = self._setup.own_modules(around)
        # Without a hook that saves checkpoints nothing would read the copy, which takes memory.
        if not own or all(hook.stage != "save_checkpoint" for hook in self._registry.hooks):
            return None
        from train_manager.checkpoints.copies import copy_state

        return cast("dict[str, Any]", copy_state(own))

    @contextmanager
    def _pausing(self, without: Iterable[str]) -> Iterator[None]:
        """Let extensions pause, for a ``with`` block."""
        names = [without] if isinstance(without, str) else list(without)
        # An extension that a phase around this one has paused must still pause after this block.
        paused = [name for name in names if name not in self._registry.paused]
        if self.ranks.place is not ALONE and any(hasattr(self.extensions.get(name), "joined") for name in paused):
            what = "phase() cannot pause Distributed: the processes train together until the run ends"
            raise StageError(what, name="without", stages=self.fixtures.path, cure="leave it out of without=")
        with ExitStack() as stack:
            stack.callback(self._rest_readers)
            # Before the pause: if the `pause` of one extension raises, those that pause already must resume.
            stack.callback(self._registry.resume, paused)
            self._registry.pause(paused)
            self._rest_readers()
            yield

    @contextmanager
    def _adding(self, added: Extensions | None) -> Iterator[None]:
        """Add extensions, for a ``with`` block."""
        with ExitStack() as stack:
            for name, extension in name_extensions(added, self._options.words).items():
                # The training may have an extension of this name already, as of the same class.
                taken = free_name(extension, self.extensions) if name in self else name
                stack.callback(self._remove_if_there, extension)  # first: Ctrl-C may come as the extension is added
                self.add_extension(extension, taken)
            yield

    def _remove_if_there(self, extension: Extension) -> None:
        """Remove an extension, unless it was removed already, or never added."""
        try:
            if any(one is extension for one in self.extensions.values()):
                self.remove_extension(extension)
        except KeyboardInterrupt:
            # Ctrl-C has taken the removal back, so that the extension would stay after its block.
            if any(one is extension for one in self.extensions.values()):
                self.remove_extension(extension)
            raise

    def _rest_readers(self) -> None:
        """Give no rows to the readers of extensions that pause, as their hooks do not run."""
        self.fixtures["batch_losses"].rest([self.extensions[name] for name in self._registry.paused])
