"""Checkpoints: save the whole training, and resume from there to the same result."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import nullcontext, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torch.nn.parameter import is_lazy

from train_manager.checkpoints.arguments import require_mirror, require_resume, require_save_at
from train_manager.checkpoints.base import Base, facts_of, refuse_another, tensors_of
from train_manager.checkpoints.copies import copy_state
from train_manager.checkpoints.fit import Difference, Left, list_names
from train_manager.checkpoints.left_out import numbers_of_all, warn_of_forgotten
from train_manager.checkpoints.manifest import warn_of_differences
from train_manager.checkpoints.mirror import Mirror
from train_manager.checkpoints.opened_folder import OpenedFolder
from train_manager.checkpoints.selection import SavedWeights, numbers_of, restore_fixtures, several, state_of_fixtures
from train_manager.checkpoints.state_tree import split
from train_manager.checkpoints.verification import read_manifest
from train_manager.core.declarations import always, modifies, priority
from train_manager.core.extension import Extension
from train_manager.core.fixtures import Fixtures
from train_manager.core.schedule import Schedule
from train_manager.data.fingerprint import fingerprint, row_digests
from train_manager.data.loader_position import doubts
from train_manager.data.shares import ALONE
from train_manager.distribution.sharded import full_state
from train_manager.files.background import Background
from train_manager.files.moves import move_away
from train_manager.files.train_dirs import TRAIN_DIR
from train_manager.loop.saved_state import not_a_state
from train_manager.metrics.monitor import Monitor, is_at_start, metric_name, metric_value, mode_of
from train_manager.model.modules import plain_name
from train_manager.rebuilding.recorded import recorded
from train_manager.schedules import scheduled
from train_manager.signals import stop_on_signals
from train_manager.telling.errors import CheckpointError, InputError, StageError, TrainManagerError
from train_manager.telling.findings import Finding
from train_manager.telling.source_locations import users_level
from train_manager.validation import require_count

if TYPE_CHECKING:
    from train_manager.loop.ranks import Ranks
    from train_manager.manager import TrainManager


@recorded
class Checkpoints(Extension):
    """Save the whole training into ``train_dir``, and resume from there to the same result, to the bit.

    >>> import tempfile
    >>> from train_manager.testing import tiny_manager
    >>> folder = tempfile.mkdtemp()
    >>> result = tiny_manager(Checkpoints(), epochs=2, train_dir=folder).train()
    >>> tm = tiny_manager(Checkpoints(resume=True), epochs=3, train_dir=folder)
    >>> result = tm.train()
    >>> result.epochs, tm.epoch_num
    (1, 3)

    A checkpoint holds what ``tm.state_dict()`` returns: the model, optimizers, schedules, the state of each extension,
    random states, counters, the position in the data, phases, the history. It is written between two batches, when
    counters, schedules and extensions agree; and as a whole or not at all, whenever the process is killed.

    If ``train_dir`` has checkpoints already, ``resume`` says whether to use them. A damaged checkpoint is renamed,
    with a warning, and the newest sound one is used. Nothing in a checkpoint is ever executed, and nothing overwritten.

    To save the best weights, and to resume when the program is started again:

    >>> checkpoints = Checkpoints(save_at="best", resume=True)

    SIGTERM and Ctrl-C end the run after the present step, with a checkpoint if ``save_at`` has "end"; a second one ends
    the process at once. SIGUSR1, which clusters send before the time is up, does the same, with an exit code that asks
    to be queued again.

    Of several processes (``Distributed``), rank 0 alone locks, reads and writes, so the others need no disk that they
    share with it. Any number of processes resumes from its checkpoints: as many to the bit, others within rounding.

    *Runs at:* around ``run``; the start of ``load_checkpoint``, ``train`` and ``save_checkpoint``; the end of ``run``,
    ``train_step_epoch`` and ``eval``; the end of ``train_step_batch`` if ``save_at`` has a schedule.

    *Asks for:* ``train_dir``, ``eval_results``, ``standalone_eval``, ``epoch_num``, ``step_num``, and the fixtures
    that it saves.

    *Leaves behind:* folders ``checkpoints/step-000000000123`` in ``train_dir``; modified fixtures ``checkpoint_loaded``
    and ``checkpoint_saved``, which are paths.

    Args:
        save_at: any of "epoch" (after each), "end" (of each training call, also if it is stopped), "best" (after each
            evaluation that is better than all before), and one schedule (``every(500)`` counts batches,
            ``periodically(600)`` seconds). An epoch that was stopped half-way is saved by "end" alone.
        keep: how many of the newest checkpoints to keep, beside the best one; None keeps all.
        monitor: the set and the metric that decide which one is the best, as ``"valid/accuracy"``; None takes the loss
            of the first set of ``eval_data``, if there is one.
        mode: "min" if less is better, "max" if more is better; None derives it from the metric's name.
        resume: False refuses a ``train_dir`` that has checkpoints; True resumes from one; "fresh" moves the folder
            aside, to ``<train_dir>-before-1``, and begins anew.
        at: with ``resume=True``, the checkpoint to resume from: "last", "best", a step, or a path, also that of another
            training, from which a new ``train_dir`` begins. Later checkpoints of this training are moved to
            ``checkpoints/superseded`` as it continues.
        exclude: patterns of names in the model's state that are not saved, as ``"backbone.*"``; loading leaves them as
            they are.
        only: patterns of the names that are saved, as ``"*.lora_*"``, in place of ``exclude``; or "trainable": all
            but the frozen parameters that have not changed. A checkpoint names the tensors that it leaves out by their
            hashes: a model in which one of them is another is refused.
        fixtures: names of live fixtures to save too: objects with a ``state_dict``, or plain values.
        in_background: write in a thread, one checkpoint at a time; the training waits for the copy only.
        mirror: a second folder, to which a thread copies each checkpoint; ``keep`` counts there too. If it cannot be
            written, a finding says so, the training goes on, and a later checkpoint brings what is missing. A
            ``train_dir`` without checkpoints resumes from there.
        strict: refuse a checkpoint that does not fit; False loads the entries that fit, and lists the others.
        requeue_exit_code: of the process after SIGUSR1: 99 for Grid Engine, 85 for HTCondor.

    Attributes:
        best: the best value so far; None before the first.

    Raises:
        InputError: an argument is invalid, or the evaluation has no such metric.
        CheckpointError: ``train_dir`` has checkpoints, another process writes there, a checkpoint is damaged, does not
            fit, or cannot be written.
    """

    # While the extension pauses, around_run stays open: the lock keeps other processes out of the folder, and a signal
    # still ends the run in order.
    sole = True
    keeps_hold = True

    def __init__(
        self,
        save_at: str | Schedule | Iterable[str | Schedule] = ("epoch", "end"),
        *,
        keep: int | None = 3,
        monitor: str | None = None,
        mode: str | None = None,
        resume: bool | str = False,
        at: str | int | os.PathLike[str] = "last",
        exclude: str | Iterable[str] = (),
        only: str | Iterable[str] = (),
        fixtures: str | Iterable[str] = (),
        in_background: bool = False,
        mirror: str | os.PathLike[str] | None = None,
        strict: bool = True,
        requeue_exit_code: int = 99,
    ) -> None:
        self.save_at: tuple[str | Schedule, ...] = require_save_at(save_at)
        none = "keep=None keeps all"
        self.keep: int | None = None if keep is None else require_count(keep, "keep", at_least=1, cure=none)
        self.monitor: str | None = None if monitor is None else metric_name(monitor, "Checkpoints")
        self.mode: str = mode_of(monitor or "valid/loss", mode, "Checkpoints")
        self.best_by = Monitor(self.monitor, self.mode, "Checkpoints", keeps=1)
        self.resume: bool | str = require_resume(resume, at)
        self.at: str | int | os.PathLike[str] = at
        self.saved_weights, self.fixtures = SavedWeights(several(exclude), several(only)), several(fixtures)
        self.exclude, self.only = self.saved_weights.exclude, self.saved_weights.only
        self.in_background, self.strict = in_background, strict
        self.mirror = require_mirror(mirror)
        self.requeue_exit_code = requeue_exit_code
        self.best: float | None = None
        self._present: OpenedFolder | None = None  # from the first run on; another train_dir gets another one
        self._background = Background(self._write)  # its thread, used with in_background=True
        # Raises a signal that came between two training calls of the run.
        self._raise_signal: Callable[[], None] = no_signal
        for schedule in (one for one in self.save_at if isinstance(one, Schedule)):
            # The hook exists only with a schedule, so that without one no step pays for it.
            vars(self)["post_train_step_batch"] = ask_for_a_checkpoint
            scheduled(self, "post_train_step_batch", schedule)

    # ---- the run -------------------------------------------------------------------------------------------------

    @priority(-100)  # first: resume="fresh" moves the folder, in which other extensions open files
    def around_run(self, train_manager: TrainManager, train_dir: Path) -> Iterator[None]:
        opened = self._open(train_dir, moves=not train_manager.ranks.place.rank)
        opened.numbers = opened.numbers or numbers_of_all(train_manager)
        # Of the data as the run opens: a phase or a hook may give others, in the program that resumes too.
        opened.rows = opened.rows or row_digests(fingerprint(train_manager.train_data))
        with stop_on_signals(
            train_manager, saves="end" in self.save_at, requeue_exit_code=self.requeue_exit_code
        ) as self._raise_signal:
            try:
                yield
                if self.in_background:
                    # Else a process that waits for nothing more would not learn of an error of rank 0's thread.
                    self._background.join()
                    train_manager.ranks.of_first(None)
            finally:
                # The lock is released last, even if the thread's error comes out of join().
                self._raise_signal = no_signal
                try:
                    self._background.join()
                finally:
                    opened.close()

    @always
    def post_run(self, train_manager: TrainManager) -> None:
        self._background.join()  # here, so that RunRecord, around this hook, sees an error of the thread
        if self._present is not None and self._present.mirror is not None:
            self._present.mirror.join()
            tell_of_trouble(self._present.mirror, train_manager)

    def _open(self, train_dir: Path, *, moves: bool) -> OpenedFolder:
        """Return the opened folder; in the first run with ``resume="fresh"`` rank 0 moves an existing folder aside."""
        if self._present is None or self._present.given_dir != train_dir:
            # A program that is run again into another folder must not write among the copies of the first run.
            mirror = None if os.environ.get(TRAIN_DIR) else self.mirror
            self._present = OpenedFolder(train_dir, mirror)
            if self.resume == "fresh" and moves:
                for folder in (train_dir, mirror):
                    if folder is not None and folder.is_dir():
                        move_away(folder.absolute())
        return self._present

    @property
    def _opened(self) -> OpenedFolder:
        if self._present is None:
            what = "a hook of Checkpoints was called, but no run has opened its folder"
            raise StageError(what, name="run", asked_by="Checkpoints", cure="call it in a run: with tm.run(): ...")
        return self._present

    # ---- loading -------------------------------------------------------------------------------------------------

    @modifies("checkpoint_loaded")
    def pre_load_checkpoint(self, train_manager: TrainManager, fixtures: Fixtures) -> Path | bool:
        opened = self._opened
        if not opened.is_new:
            return False  # a further run of the same training has its state in memory
        ranks = train_manager.ranks
        # Rank 0 alone reads and verifies, so that the disks of the other processes need not have the checkpoint.
        path, state = ranks.of_first((None, {}) if ranks.place.rank else self._read(train_manager))
        if path is not None:
            # The warnings of the others would be those of rank 0 once more.
            with warnings.catch_warnings(action="ignore") if ranks.place.rank else nullcontext():
                self._load(path, state, train_manager, fixtures)
        if (self.only or self.exclude) and opened.base is None and not ranks.place.rank:
            opened.base = Base(train_manager.model)
        opened.is_new, opened.loaded = False, path
        return path or False

    def _read(self, train_manager: TrainManager) -> tuple[Path | None, dict[str, Any]]:
        """Return the checkpoint to resume from, and its state."""
        # Whether a checkpoint may be written within an epoch, where more data cannot resume exactly.
        is_within = train_manager.steps_per_epoch is not None or {*self.save_at} - {"epoch", "best"}
        warn_of_doubts(train_manager.train_data, is_within=bool(is_within))
        path = self._opened.to_load(self.resume, self.at, self.mode)
        if path is None:
            return None, {}
        state = self._opened.folder.read(path)
        manifest = read_manifest(path)
        warn_of_differences(path.name, manifest, self._opened.rows)
        state["base"] = self._compare_base(path.name, manifest, train_manager.model)
        return path, state

    def _compare_base(self, checkpoint: str, manifest: Mapping[str, Any], model: Any) -> list[str]:
        """Return the names of what a checkpoint leaves out; refuse, or with ``strict=False`` warn of, other tensors."""
        saved = (manifest.get("base") or {}).get("tensors", {})
        if saved:
            self._opened.base = Base(model)
            try:
                refuse_another(checkpoint, saved, self._opened.base, model)
            except CheckpointError as error:
                if self.strict:
                    raise
                warnings.warn(error.what, RuntimeWarning, stacklevel=users_level())
        return [*saved]

    def _load(self, path: Path, state: dict[str, Any], train_manager: TrainManager, fixtures: Fixtures) -> None:
        if not all(isinstance(state.get(part, {}), dict) for part in ("model", "fixtures")):
            raise CheckpointError(f"{path} is damaged: its model and its fixtures are not dicts", name=path.name)
        # Entries that `exclude` or `only` has left out are taken from the present model, so that nothing is missing.
        model, base = train_manager.model, state.pop("base", ())
        state["model"] = self.saved_weights.put_back(state.get("model", {}), model, base)
        train_manager.load_state_dict(state, strict=self.strict)
        if self._opened.base is not None:
            self._opened.base.mark(model)  # its own values were written to it, so that nothing was missing
        try:
            restore_fixtures(fixtures, state.get("fixtures", {}))
        except (AttributeError, LookupError, TypeError, ValueError) as error:
            if isinstance(error, TrainManagerError):
                raise
            raise not_a_state(error, f"a fixture of {path.name}") from error

    # ---- asking for one ------------------------------------------------------------------------------------------

    @priority(-100)  # takes the lock before MetricStore begins a run, as another process may still be writing
    def pre_train(self, train_manager: TrainManager) -> None:
        self._raise_signal()
        if "best" in self.save_at and not train_manager.eval_data:
            cure = 'give eval_data={"valid": ...}, or save_at="epoch"'
            what = "save_at has 'best', but there is no eval_data"
            raise InputError(what, name="save_at", asked_by="Checkpoints", cure=cure)
        if not train_manager.ranks.place.rank:
            self.saved_weights.warn_of_no_match(train_manager.model)
            self._opened.begin_to_write()
        if train_manager.ranks.place is ALONE:  # an error of one process alone would be lost here
            self._require_storable(train_manager)
        if "end" in self.save_at:
            # The loop saves between two batches, when counters, schedules and extensions agree; hooks only ask for it.
            train_manager.save_soon(at="end")

    def post_train_step_epoch(self, train_manager: TrainManager) -> None:
        if "epoch" in self.save_at:
            train_manager.save_soon()

    def post_eval(
        self,
        train_manager: TrainManager,
        eval_results: Mapping[str, Mapping[str, Any]],
        standalone_eval: bool,
        epoch_num: int,
        step_num: int,
    ) -> None:
        if standalone_eval:
            return
        value = self._monitored_value(eval_results, train_manager)
        # nan, and the untrained model, are never the best.
        if value is None or value != value or is_at_start(epoch_num, step_num, train_manager.first_step):
            return
        if self.best is None or (value < self.best if self.mode == "min" else value > self.best):
            self.best = value
            if "best" in self.save_at:
                train_manager.save_soon()

    def _require_storable(self, train_manager: TrainManager) -> None:
        """Refuse a state that no checkpoint can hold as the first training begins, and not after an epoch.

        Raises:
            CheckpointError: an object in the state cannot be stored; with its path in the state.
        """
        if not self._opened.is_storable:
            try:
                state = whole_state(train_manager.ranks, train_manager.state_dict())
            except Exception:  # an extension may know its state only after the first batch
                return
            # The shapes of lazy parameters are unknown until the first batch.
            split({**state, "model": {n: value for n, value in state.get("model", {}).items() if not is_lazy(value)}})
        self._opened.is_storable = True

    def _monitored_value(self, results: Mapping[str, Mapping[str, Any]], train_manager: TrainManager) -> float | None:
        if self.monitor is not None:
            return metric_value(self.monitor, results, train_manager.eval_data, "Checkpoints", train_manager.optimizers)
        loss = next(iter(results.values()), {}).get("loss")
        return None if loss is None else float(loss)

    # ---- saving --------------------------------------------------------------------------------------------------

    @modifies("checkpoint_saved")
    def pre_save_checkpoint(self, train_manager: TrainManager, fixtures: Fixtures, step_num: int) -> Path:
        ranks, opened = train_manager.ranks, self._opened
        if not ranks.place.rank:
            opened.begin_to_write()
            warn_of_forgotten(opened.numbers, train_manager)
            tell_of_trouble(opened.mirror, train_manager)
        state = train_manager.state_dict()
        # Of shards each process must leave out the same ones, else the others wait for a part that is not sent.
        base = ranks.of_first({} if ranks.place.rank else self._base_of(state.get("model", {}), train_manager))
        state["model"] = self.saved_weights.of(state.get("model", {}), train_manager.model, base)
        state["fixtures"] = state_of_fixtures(fixtures, self.fixtures)
        state = whole_state(ranks, state)
        # The others wait until rank 0 has written: its error is an error of all, also at the end of the training.
        return ranks.of_first(Path() if ranks.place.rank else self._save(step_num, state, base, train_manager))

    def _base_of(self, names: Iterable[str], train_manager: TrainManager) -> dict[str, str]:
        """Return the digests of what is left out and as it was; note what is left out although it was trained."""
        base, model = self._opened.base, train_manager.model
        if base is None:
            return {}
        left_out = self.saved_weights.left_out(names, model)
        found = base.unchanged(left_out, model)
        changed = sorted((tensors_of(model).keys() & map(plain_name, left_out)) - found.keys())
        if changed and not self.saved_weights.is_trainable:
            argument = "only" if self.only else "exclude"
            what = (
                f"no checkpoint holds tensors that have changed since the training began, as {argument} leaves them out"
            )
            cure = 'a training that resumes begins them anew; only="trainable" saves what changes'
            found_out = Finding("checkpoints", "note", what, list_names(changed), cure, code="trained-but-left-out")
            train_manager.add_finding(found_out)
        return found

    def _save(self, step_num: int, state: dict[str, Any], base: Mapping[str, str], train_manager: TrainManager) -> Path:
        """Write a state, in the background or here, and return the path of the checkpoint."""
        self._background.join()  # next_path counts the folders that are there, so the one being written must be
        # Checkpoints of later steps belong to a course that was left: an earlier state was loaded within the run.
        self._opened.folder.set_aside_after(step_num)
        path, facts = self._opened.folder.next_path(step_num), self._facts(step_num, train_manager)
        facts["base"] = facts_of(base)
        if self.in_background:
            # A copy, because the next step changes the tensors while the thread writes them.
            self._background.submit(step_num, copy_state(state), facts)
        else:
            self._write(step_num, state, facts)
        return path

    def _facts(self, step_num: int, train_manager: TrainManager) -> dict[str, Any]:
        """Return the entries of the manifest that only this extension knows: run, metrics, monitor."""
        # The metrics of an earlier step are not those of the weights in this checkpoint.
        results, value = train_manager.history.evaluation_at(step_num), None
        with suppress(InputError):  # a training that has resumed may monitor what was not measured before
            value = self._monitored_value(results, train_manager)
        return {
            "run": train_manager.run_id,
            "metrics": numbers_of(results),
            "monitored": value,
            "monitor": self.monitor,
            "mode": self.mode,
            "rows": self._opened.rows,
        }

    def _write(self, step: int, state: dict[str, Any], facts: dict[str, Any]) -> None:
        folder = self._opened.folder
        folder.write(step, state, facts)
        if self.keep is not None:
            folder.keep(self.keep, self.mode)
        if (mirror := self._opened.mirror) is not None:
            mirror.catch_up(self.keep, self.mode)

    # ---- its own state -------------------------------------------------------------------------------------------

    def state_dict(self) -> dict[str, Any]:
        """Return the best value so far, its monitor and mode."""
        return {**super().state_dict(), "best": self.best, "monitor": self.monitor, "mode": self.mode}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore what ``state_dict`` returned; a best value of another monitor or mode is left out."""
        super().load_state_dict(state)
        self.best = None if self._is_other(state) else state["best"]

    def _is_other(self, state: Mapping[str, Any]) -> bool:
        return "monitor" in state and (state["monitor"], state["mode"]) != (self.monitor, self.mode)

    def compared_with(self, state: Mapping[str, Any], *, left: Left) -> Iterator[str | Difference]:
        """Yield a difference if another metric decides now which checkpoint is the best one."""
        if self._is_other(state):
            here, there = (
                f"{monitor or 'loss'} ({mode})"
                for monitor, mode in ((self.monitor, self.mode), (state["monitor"], state["mode"]))
            )
            yield Difference("monitor of Checkpoints", here, there, f"{here}, whose best value begins anew")


def whole_state(ranks: Ranks, state: dict[str, Any]) -> dict[str, Any]:
    """Return a state with whole tensors; of several processes with shards of them, all must call this."""
    return full_state(state) if ranks.makes_equal_steps else state


def tell_of_trouble(mirror: Mirror | None, train_manager: TrainManager) -> None:
    """Tell once why the mirror could not be written: it is a finding, which is known from then on."""
    if mirror is not None and mirror.trouble is not None:
        train_manager.add_finding(mirror.trouble)


def ask_for_a_checkpoint(train_manager: Any) -> None:
    """Ask for a checkpoint: the hook of a schedule in ``save_at``."""
    train_manager.save_soon()


def no_signal() -> None:
    """Do nothing: no run is open in which a signal may have come."""


def warn_of_doubts(data: object, *, is_within: bool) -> None:
    """Warn if the training may not resume exactly from a checkpoint within an epoch, or from any."""
    for doubt in doubts(data):
        if is_within or doubt.is_at_ends:
            warnings.warn(f"train_data ({type(data).__name__}) {doubt.what}; {doubt.cure}", stacklevel=users_level())
