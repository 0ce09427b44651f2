"""Checkpoints: save the whole training, and go on from there to the same result."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torch.nn.parameter import is_lazy

from train_manager.checkpoints.arguments import require_keep, require_resume, require_save_at, several
from train_manager.checkpoints.checkpoint_folder import CheckpointFolder
from train_manager.checkpoints.copies import copied
from train_manager.checkpoints.fit import Difference
from train_manager.checkpoints.forgotten import Numbers, numbers_of_all, warn_of_forgotten
from train_manager.checkpoints.manifest import differences_from_here
from train_manager.checkpoints.parts import (
    numbers_of,
    put_back,
    restore_fixtures,
    state_of_fixtures,
    warn_of_no_match,
    without,
)
from train_manager.checkpoints.state_tree import split
from train_manager.checkpoints.verification import read_manifest
from train_manager.core.decorators import always, modifies, priority
from train_manager.core.extension import Extension
from train_manager.core.fixtures import Fixtures
from train_manager.core.schedule import Schedule
from train_manager.data.known_position import doubts
from train_manager.files.background import Background
from train_manager.files.lock import WriterLock
from train_manager.files.moves import move_away
from train_manager.loop.outside_stops import stopped_by_signals
from train_manager.loop.saved_state import not_a_state
from train_manager.metrics.monitor import is_at_start, metric_name, metric_value, mode_of
from train_manager.rebuilding.recorded import recorded
from train_manager.schedules import scheduled
from train_manager.telling.errors import CheckpointError, InputError, StageError, TrainManagerError
from train_manager.telling.source_locations import users_level

if TYPE_CHECKING:
    from train_manager.manager import TrainManager


@recorded
class Checkpoints(Extension):
    """Save the whole training into ``train_dir``, and go on from there to the same result, to the bit.

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

    If ``train_dir`` has checkpoints already, ``resume`` says what becomes of them. A damaged checkpoint is renamed,
    with a warning, and the newest sound one is used. Nothing in a checkpoint is ever executed, and nothing overwritten.

    To save the best weights, and to go on when the program is started again:

    >>> checkpoints = Checkpoints(save_at="best", resume=True)

    SIGTERM and Ctrl-C end the run after the present step, with a checkpoint if ``save_at`` has "end"; a second one ends
    the process at once. SIGUSR1, which clusters send before the time is up, does the same, with an exit code that asks
    to be queued again.

    *Runs at:* around ``run``; the start of ``load_checkpoint``, ``train`` and ``save_checkpoint``; the end of ``run``,
    ``train_step_epoch`` and ``eval``; the end of ``train_step_batch`` if ``save_at`` has a schedule.

    *Asks for:* ``train_dir``, ``eval_results``, ``standalone_eval``, ``epoch_num``, ``step_num``, and the fixtures
    that it saves.

    *Leaves behind:* folders ``checkpoints/step-000000000123`` in ``train_dir``; modified fixtures ``checkpoint_loaded``
    and ``checkpoint_saved``, which are paths.

    Args:
        save_at: any of "epoch" (after each), "end" (of each training call, also if it is stopped), "best" (after each
            evaluation that is better than all before), and one schedule (``every(500)`` counts batches,
            ``periodically(600)`` seconds).
        keep: how many of the newest checkpoints to keep, beside the best one; None keeps all.
        monitor: the set and the metric that decide which one is the best, as ``"valid/accuracy"``; None takes the loss
            of the first set of ``eval_data``, if there is one.
        mode: "min" if less is better, "max" if more is better; None derives it from the metric's name.
        resume: False refuses a ``train_dir`` that has checkpoints; True goes on from one; "fresh" moves the folder
            aside, to ``<train_dir>-before-1``, and begins anew.
        at: with ``resume=True``, the checkpoint to go on from: "last", "best", a step, or a path, also that of another
            training, from which a new ``train_dir`` begins. Later checkpoints of this training are moved to
            ``checkpoints/superseded`` as it goes on.
        exclude: patterns of names in the model's state that are not saved, as ``"backbone.*"``; loading leaves them as
            they are.
        fixtures: names of live fixtures to save too: those with a ``state_dict``, and plain values.
        in_background: write in a thread, one checkpoint at a time; the training waits for the copy only.
        strict: refuse a checkpoint that does not fit; False loads what fits, and says what does not.
        requeue_exit_code: of the process after SIGUSR1: 99 for Grid Engine, 85 for HTCondor.

    Attributes:
        best: the best value so far; None before the first.

    Raises:
        InputError: an argument is invalid, or the evaluation has no such metric.
        CheckpointError: ``train_dir`` has checkpoints, another process writes there, a checkpoint is damaged, does not
            fit, or cannot be written.
    """

    keeps_hold = True  # while it pauses: no other process may write there, and a signal still ends the run in order

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
        fixtures: str | Iterable[str] = (),
        in_background: bool = False,
        strict: bool = True,
        requeue_exit_code: int = 99,
    ) -> None:
        self.save_at: tuple[str | Schedule, ...] = require_save_at(save_at)
        self.keep: int | None = None if keep is None else require_keep(keep)
        self.monitor: str | None = None if monitor is None else metric_name(monitor, "Checkpoints")
        self.mode: str = mode_of(monitor or "valid/loss", mode, "Checkpoints")
        self.resume: bool | str = require_resume(resume, at)
        self.at: str | int | os.PathLike[str] = at
        self.exclude, self.fixtures = several(exclude), several(fixtures)
        self.in_background, self.strict = in_background, strict
        self.requeue_exit_code = requeue_exit_code
        self.best: float | None = None
        self._evaluated: tuple[int, float | None, dict[str, Any]] | None = None  # step, value, results
        self._run_id = ""
        self._present: OpenedFolder | None = None  # from the first run on
        self._background = Background(self._write)
        self._raise_signal: Callable[[], None] = no_signal
        for schedule in (one for one in self.save_at if isinstance(one, Schedule)):
            vars(self)["post_train_step_batch"] = ask_for_a_checkpoint
            scheduled(self, "post_train_step_batch", schedule)

    # ---- the run -------------------------------------------------------------------------------------------------

    @priority(-100)  # before an extension opens a file in a folder that is moved
    def around_run(self, train_manager: TrainManager, train_dir: Path) -> Iterator[None]:
        self._run_id = train_manager.run_id
        opened = self._open(train_dir)
        opened.numbers = opened.numbers or numbers_of_all(train_manager)
        with stopped_by_signals(
            train_manager, saves="end" in self.save_at, requeue_exit_code=self.requeue_exit_code
        ) as self._raise_signal:
            try:
                yield
            finally:
                self._raise_signal = no_signal
                try:
                    self._background.join()
                finally:
                    while opened.lock.is_held:
                        opened.lock.release()

    @always
    def post_run(self) -> None:
        self._background.join()  # here, so that its error is one of the run for hooks that record how the run ends

    def _open(self, train_dir: Path) -> OpenedFolder:
        """Return the folder, also for a further run; with ``resume="fresh"`` move what is there aside at first."""
        if self._present is None or self._present.given_dir != train_dir:
            self._present = OpenedFolder(train_dir)
            if self.resume == "fresh":
                move_away(self._present.lock)
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
            return False  # a further run of the same training
        is_within = train_manager.steps_per_epoch is not None or {*self.save_at} - {"epoch", "best"}
        warn_of_doubts(train_manager.train_data, is_within=bool(is_within))
        path = self._to_load(opened.folder)
        if path is not None:
            self._load(path, train_manager, fixtures)
        opened.is_new, opened.loaded = False, path
        return path or False

    def _to_load(self, folder: CheckpointFolder) -> Path | None:
        """Return the checkpoint to go on from; None if the training begins anew."""
        has_own, at = bool(folder.checkpoints()), self.at
        if self.resume is not True:
            if has_own:
                raise has_checkpoints(folder)
            return None
        if not isinstance(at, int) and at not in ("last", "best"):
            is_another = Path(at).exists() and not folder.has(at)  # one that is misspelt is an error
            return folder.find("last" if has_own and is_another else at, mode=self.mode)
        is_there = has_own or folder.damaged() or isinstance(at, int)
        return folder.find(at, mode=self.mode) if is_there else None

    def _load(self, path: Path, train_manager: TrainManager, fixtures: Fixtures) -> None:
        state = self._opened.folder.read(path)
        warn_of_another_place(path)
        if not all(isinstance(state.get(part, {}), dict) for part in ("model", "fixtures")):
            raise CheckpointError(f"{path} is damaged: its model and its fixtures are not dicts", name=path.name)
        state["model"] = put_back(state.get("model", {}), train_manager.model, self.exclude)
        train_manager.load_state_dict(state, strict=self.strict)
        try:
            restore_fixtures(fixtures, state.get("fixtures", {}))
        except (AttributeError, LookupError, TypeError, ValueError) as error:
            if isinstance(error, TrainManagerError):
                raise
            raise not_a_state(error, f"a fixture of {path.name}") from error

    # ---- asking for one ------------------------------------------------------------------------------------------

    @priority(-100)  # before MetricStore supersedes the figures of another run that still writes into this folder
    def pre_train(self, train_manager: TrainManager) -> None:
        self._raise_signal()
        if "best" in self.save_at and not train_manager.eval_data:
            cure = 'give eval_data={"valid": ...}, or save_at="epoch"'
            what = "save_at has 'best', but there is no eval_data"
            raise InputError(what, name="save_at", asked_by="Checkpoints", cure=cure)
        warn_of_no_match(train_manager.model, self.exclude)
        self._opened.begin_to_write()
        self._opened.require_storable(train_manager)
        if "end" in self.save_at:
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
        value = self._monitored(eval_results, train_manager)
        self._evaluated = step_num, value, numbers_of(eval_results)
        if value is None or value != value or is_at_start(epoch_num, step_num, train_manager.first_step):
            return
        if self.best is None or (value < self.best if self.mode == "min" else value > self.best):
            self.best = value
            if "best" in self.save_at:
                train_manager.save_soon()

    def _monitored(self, results: Mapping[str, Mapping[str, Any]], train_manager: TrainManager) -> float | None:
        if self.monitor is not None:
            return metric_value(self.monitor, results, train_manager.eval_data, "Checkpoints", train_manager.optimizers)
        loss = next(iter(results.values()), {}).get("loss")
        return None if loss is None else float(loss)

    # ---- saving --------------------------------------------------------------------------------------------------

    @modifies("checkpoint_saved")
    def pre_save_checkpoint(self, train_manager: TrainManager, fixtures: Fixtures, step_num: int) -> Path:
        opened = self._opened
        opened.begin_to_write()
        warn_of_forgotten(opened.numbers, train_manager)
        state = train_manager.state_dict()
        state["model"] = without(state.get("model", {}), self.exclude)
        state["fixtures"] = state_of_fixtures(fixtures, self.fixtures)
        self._background.join()  # the name of the one in flight is taken only when it is there
        opened.folder.set_aside_after(step_num)  # those of another way: an earlier state was loaded since
        path, facts = opened.folder.next_path(step_num), self._facts(step_num)
        if self.in_background:
            self._background.submit(opened.folder, step_num, copied(state), facts)
        else:
            self._write(opened.folder, step_num, state, facts)
        return path

    def _facts(self, step_num: int) -> dict[str, Any]:
        """Return what the manifest tells, beside what the checkpoint is made of."""
        step, value, results = self._evaluated or (None, None, {})
        is_present = step == step_num
        return {
            "run": self._run_id,
            "metrics": results if is_present else {},
            "monitored": value if is_present else None,
            "monitor": self.monitor,
            "mode": self.mode,
        }

    def _write(self, folder: CheckpointFolder, step: int, state: dict[str, Any], facts: dict[str, Any]) -> None:
        folder.write(step, state, facts)
        if self.keep is not None:
            folder.keep(self.keep, self.mode)

    # ---- its own state -------------------------------------------------------------------------------------------

    def state_dict(self) -> dict[str, Any]:
        """Return the best value so far, what it is of, and the last evaluation."""
        monitored = {"monitor": self.monitor, "mode": self.mode}
        return {**super().state_dict(), "best": self.best, "evaluated": self._evaluated, **monitored}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore what ``state_dict`` returned; the best value of something else is left out."""
        super().load_state_dict(state)
        self.best, self._evaluated = state["best"], state["evaluated"]
        if self._is_other(state):
            self.best, self._evaluated = None, None

    def _is_other(self, state: Mapping[str, Any]) -> bool:
        return "monitor" in state and (state["monitor"], state["mode"]) != (self.monitor, self.mode)

    def compared_with(self, state: Mapping[str, Any], *, goes_on: bool) -> Iterator[str | Difference]:
        """Say whether another metric decides now which checkpoint is the best one."""
        if self._is_other(state):
            here, there = (
                f"{monitor or 'loss'} ({mode})"
                for monitor, mode in ((self.monitor, self.mode), (state["monitor"], state["mode"]))
            )
            yield Difference("monitor of Checkpoints", here, there, f"{here}, whose best value begins anew")


class OpenedFolder:
    """The checkpoints of a training in one ``train_dir``, and the lock that keeps others from writing there."""

    def __init__(self, train_dir: Path) -> None:
        self.given_dir, train_dir = train_dir, train_dir.absolute()  # a further run may be in another working directory
        self.lock, self.folder = WriterLock(train_dir), CheckpointFolder(train_dir / "checkpoints")
        self.is_new = True  # no run has passed `load_checkpoint`
        self.is_storable = False  # that is not known yet
        self.numbers: Numbers = {}  # of what no checkpoint holds, as the first run began
        self.loaded: Path | None = None  # until something is written after it

    def begin_to_write(self) -> None:
        """Keep other processes out, and put away what they have left, and what this training goes back before."""
        if not self.lock.is_held:
            self.lock.acquire()
            self.folder.clean_up(self.lock)
        loaded, self.loaded = self.loaded, None
        if loaded is not None and loaded.parent == self.folder.path:
            self.folder.set_aside_after(loaded)

    def require_storable(self, train_manager: TrainManager) -> None:
        """Refuse what no checkpoint can hold as the first training begins, and not after an epoch.

        Raises:
            CheckpointError: with its path in the state.
        """
        if not self.is_storable:
            try:
                state = train_manager.state_dict()
            except Exception:  # an extension may know its state only after the first batch
                return
            split({**state, "model": known_in(state.get("model", {}))})
        self.is_storable = True


def known_in(model: Mapping[str, Any]) -> dict[str, Any]:
    """Return a model's state without the parameters whose shapes the first batch will tell."""
    return {name: value for name, value in model.items() if not is_lazy(value)}


def ask_for_a_checkpoint(train_manager: Any) -> None:
    """Ask for a checkpoint: the hook that a schedule of ``save_at`` is put on."""
    train_manager.save_soon()


def no_signal() -> None:
    """Raise nothing: no run is open in which a signal may have come."""


def has_checkpoints(folder: CheckpointFolder) -> CheckpointError:
    """Return the error for a folder that has checkpoints, if ``resume`` does not say what becomes of them."""
    names = [path.name for path in folder.checkpoints()]
    listed = ", ".join(names[-3:]) if len(names) <= 3 else f"{len(names)} checkpoints, up to {names[-1]}"
    cure = 'Checkpoints(resume=True) goes on from the last one, resume="fresh" moves the folder aside; '
    cure += "or give another train_dir"
    return CheckpointError(f"{folder.path} has {listed}, which this training would not go on from", cure=cure)


def warn_of_doubts(data: object, *, is_within: bool) -> None:
    """Warn if the training may not go on exactly from a checkpoint within an epoch, or from any."""
    for doubt in doubts(data):
        if is_within or doubt.is_at_ends:
            warnings.warn(f"train_data ({type(data).__name__}) {doubt.what}; {doubt.cure}", stacklevel=users_level())


def warn_of_another_place(path: Path) -> None:
    """Warn if the results may differ in their last bits from those of the training that wrote a checkpoint."""
    found = differences_from_here(read_manifest(path))
    if found:
        what = f"{path.name} was written with {', '.join(found)}"
        told = f"{what}: the training goes on, but not bit for bit as it would have"
        warnings.warn(told, RuntimeWarning, stacklevel=users_level())
