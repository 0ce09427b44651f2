"""RunRecord: the command, environment, parameters, data and outcome of each run, in ``run-<id>.json``."""

from __future__ import annotations

import json
import os
import warnings
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from train_manager.checkpoints.manifest import run_of
from train_manager.core.declarations import always, priority
from train_manager.core.extension import Extension
from train_manager.data.fingerprint import fingerprint
from train_manager.loop.progress import EVALUATIONS
from train_manager.metrics.history_rows import last_metrics
from train_manager.rebuilding.recorded import parameters_of, recorded
from train_manager.reporting.history import History
from train_manager.runs.record.command import command
from train_manager.runs.record.environment import environment
from train_manager.runs.record.made_objects import Made, made_objects, unrecorded_objects
from train_manager.runs.record.processes import this_process
from train_manager.runs.record.run_file import RunWriter, outcome
from train_manager.runs.record.trained_parts import trained_parts
from train_manager.telling.errors import InputError
from train_manager.telling.findings import Finding
from train_manager.telling.source_locations import users_level

if TYPE_CHECKING:
    from train_manager.manager import TrainManager

IN_LOOPS: Final = ("train_on_batch", "eval_on_batch", "predict")  # calls that a program makes for each batch
LEFT: Final = {"outcome": "stopped", "reason": "the run was left", "error": None}  # of a run that is never closed


@recorded
class RunRecord(Extension):
    """Record each run in ``train_dir``: command, environment, parameters, data, outcome, last metrics.

    >>> import tempfile
    >>> from train_manager.runs.record.run_file import outcome_of, read_runs
    >>> from train_manager.testing import tiny_manager
    >>> train_dir = tempfile.mkdtemp()
    >>> result = tiny_manager(RunRecord(), epochs=2, train_dir=train_dir).train()
    >>> entry = read_runs(train_dir)[-1]
    >>> outcome_of(entry), entry["progress"]["epochs"], list(entry["metrics"])
    ('completed', 2, ['loss', 'valid/loss'])

    Each TrainManager has its own ``run-<id>.json``: written as its first run opens, and renewed as its runs begin and
    end. A run whose process was killed says "running", and a reader sees that the process is gone. What looks like a
    secret is left out; only environment variables that are known to matter are recorded. No process is started.

    The fingerprint of the data has its kind, shapes and settings, and a SHA-256 of some rows of arrays in memory: it
    takes milliseconds, loads no example and moves no random state.

    Of an optimizer or a scheduler that a lambda or a function makes, ``made`` has the class and the options that are
    plain values, so that ``train-manager compare`` tells a rate of 0.1 from one of 0.3; and of those of each phase.

    If runs are opened for single batches (``train_on_batch`` or ``predict`` in a loop), the entry is renewed at most
    once a second, and as the program ends. Of a run that the program never closes, the entry then says what was
    trained in it.

    *Runs at:* around ``run``; the end of ``load_checkpoint``; the start and the end of ``train``, the start of
    ``phase``.

    *Asks for:* ``train_dir``, ``checkpoint_loaded``, ``step_num``, ``phase_name``.

    *Leaves behind:* ``run-<id>.json`` in ``train_dir``.

    Args:
        variables: names of environment variables that the program reads, or patterns of names, such as
            ``["LR", "APP_*"]``: they are recorded too, and set as they were when the run is reproduced.

    Raises:
        InputError: the variables are not texts.
    """

    sole = True
    ranks = 0
    keeps_hold = True  # around_run stays open while the extension pauses: the run has not ended

    def __init__(self, *, variables: Sequence[str] = ()) -> None:
        self.variables = require_names(variables)
        self._present: RecordedRuns | None = None  # of the TrainManager whose run was last, from its first run on

    def __getstate__(self) -> dict[str, Any]:
        """Return the attributes of a copy, which records runs of its own."""
        return {**vars(self), "_present": None}

    @priority(-90)  # inside of Checkpoints (-100), which may move the folder; around all hooks that may fail
    def around_run(self, train_manager: TrainManager, train_dir: Path) -> Iterator[None]:
        present = self._present
        if present is None or present.run_id != train_manager.run_id or present.given_dir != train_dir:
            present = RecordedRuns(train_manager, train_dir, self.variables)
        present.begin(train_manager)
        self._present = present
        try:
            yield
        except BaseException as error:  # Ctrl-C too is an outcome
            present.end(train_manager, error)
            raise
        present.end(train_manager, None)

    def post_load_checkpoint(self, checkpoint_loaded: Path | bool, step_num: int) -> None:
        if checkpoint_loaded and self._present is not None:
            self._present.goes_on_from(Path(str(checkpoint_loaded)), step_num)

    def pre_phase(self, train_manager: TrainManager, phase_name: str | None) -> None:
        self._look(train_manager, phase_name)

    def pre_train(self, train_manager: TrainManager, phase_name: str | None) -> None:
        self._look(train_manager, phase_name)

    @always  # looked at again, because an LRSchedule that joins an open run makes its scheduler in the first batch
    def post_train(self, train_manager: TrainManager, phase_name: str | None) -> None:
        self._look(train_manager, phase_name)

    def _look(self, train_manager: TrainManager, phase_name: str | None) -> None:
        if self._present is not None:  # None: the extension was added to an open run, which has no entry
            self._present.look(train_manager, phase_name)


class RecordedRuns:
    """The runs of one TrainManager, and their entry in ``run-<id>.json``."""

    def __init__(self, train_manager: TrainManager, train_dir: Path, variables: Sequence[str] = ()) -> None:
        self.run_id, self.given_dir = train_manager.run_id, train_dir
        # The history and the findings are kept, and not the manager, which the entry must not keep alive.
        self._manager = weakref.ref(train_manager)
        self._history: History = train_manager.history
        self._findings: list[Finding] = train_manager.findings
        self._training: dict[str, Any] | None = None  # the outcome of the last run that was not an evaluation
        self._first: Made = {}  # the optimizers and schedulers outside of phases
        self.entry = new_entry(train_manager, variables) | {"train_dir": os.path.abspath(train_dir)}
        self._file = RunWriter(train_dir, self.run_id)
        self._is_behind = False  # whether the entry has changes that the file lacks
        weakref.finalize(train_manager, self._finish)

    def begin(self, train_manager: TrainManager) -> None:
        """Note that a run opens; write the entry at once, if the run is the first."""
        # The method of the manager that has opened the run: `train_epochs`, `eval`, ...
        call, calls = train_manager.entered_by or "run", self.entry["calls"]
        is_first = not calls
        calls[call] = calls.get(call, 0) + 1
        self._count(train_manager)
        if call not in EVALUATIONS:
            self._training = LEFT
        if is_first:
            self._note_made(train_manager, None)
            self._write()
            say_problems(self.entry)
        elif call not in EVALUATIONS:
            self.entry |= {"outcome": "running", "reason": None, "error": None, "ended": None}
            self._write(may_wait=call in IN_LOOPS)

    def end(self, train_manager: TrainManager, error: BaseException | None) -> None:
        """Note how a run has ended."""
        call = train_manager.entered_by or "run"
        found = outcome(error, train_manager.stop_reason)
        if call not in EVALUATIONS:
            self._training = found
        elif found["outcome"] == "completed" and self._training is not None:
            found = self._training  # an evaluation afterwards does not change the outcome of a training
        self._count(train_manager)
        self.entry |= found | {"ended": now()}
        if call == "train_on_batch" and error is None:
            self.entry |= {"outcome": "running", "ended": None}  # one batch of many: the loop of the program continues
        self._write(may_wait=call in IN_LOOPS and error is None)

    def look(self, train_manager: TrainManager, phase_name: str | None) -> None:
        """Add new optimizers and schedulers to the entry; of a phase, only those that are not the training's own."""
        known = len(self.entry["made"])
        self._note_made(train_manager, phase_name)
        if len(self.entry["made"]) > known:
            self._write()

    def goes_on_from(self, checkpoint: Path, step: int) -> None:
        """Note the checkpoint that was loaded."""
        self.entry["goes_on_from"] = {"checkpoint": checkpoint.name, "step": step, "run": run_of(checkpoint)}
        self._write()

    def _note_made(self, train_manager: TrainManager, phase_name: str | None) -> None:
        found: Made = collect_item("made", lambda: made_objects(train_manager), self.entry["problems"])
        if phase_name is None:
            self._note_trained(train_manager)
            self._first = found | self._first
            new = unrecorded_objects(self._first, self.entry["parameters"])
        else:
            own = {path: tree for path, tree in found.items() if tree != self._first.get(path)}
            new = {f"phase {phase_name}.{path}": tree for path, tree in own.items()}
        for path, tree in new.items():
            self.entry["made"].setdefault(path, tree)  # as it was made, not as a hook has left it

    def _note_trained(self, train_manager: TrainManager) -> None:
        new = collect_item("trains", lambda: trained_parts(train_manager), self.entry["problems"])
        # Parameters of lazy layers come with the first batch; the rates are those that the optimizers were made with.
        first = self.entry["trains"].get("optimizers") or {}
        self.entry["trains"] = {**new, "optimizers": {**new.get("optimizers", {}), **first}}

    def _count(self, train_manager: TrainManager) -> None:
        tm = train_manager
        # The number of examples may be a tensor on a GPU, which is read only as the entry is written.
        samples = tm._counts.samples_seen
        progress = {"epochs": tm.epoch_num, "steps": tm.step_num, "updates": tm.update_num, "samples": samples}
        self.entry["progress"] = progress

    def _write(self, *, may_wait: bool = False) -> None:
        """Write the entry now; or later, if it was written within the last second and may wait."""
        self._is_behind = may_wait and self._file.is_recent
        if self._is_behind:
            return
        self.entry["progress"]["samples"] = whole(self.entry["progress"]["samples"])
        self.entry["metrics"] = last_metrics(self._history.epochs, self._history.evaluations)
        if self._findings:
            self.entry["findings"] = [finding.to_dict() for finding in self._findings]
        self._file.write(self.entry)

    def _finish(self) -> None:
        """Write what is left, as the TrainManager is collected or the process ends."""
        if self.entry["outcome"] == "running":  # a run was left open, or was one of train_on_batch
            if (train_manager := self._manager()) is not None:
                self._count(train_manager)
            self.entry |= (self._training or LEFT) | {"ended": now()}
        elif not self._is_behind:
            return
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the process ends: nobody can act on a warning
            self._write()


# ---- the entry -------------------------------------------------------------------------------------------------------


def new_entry(train_manager: TrainManager, variables: Sequence[str] = ()) -> dict[str, Any]:
    """Return the entry of a TrainManager whose first run opens; ``problems`` lists items that cannot be recorded."""
    problems: list[str] = []
    tm = train_manager
    return {
        "id": tm.run_id,
        "manager": tm.train_dir_number,
        "began": now(),
        "ended": None,
        "outcome": "running",
        "reason": None,
        "error": None,
        "process": this_process(),
        "goes_on_from": None,
        "calls": {},
        "command": collect_item("command", command, problems),
        "environment": collect_item("environment", lambda: environment(variables), problems),
        "seed": tm.seed,
        "parameters": collect_item("parameters", lambda: parameters_of(tm), problems),
        "made": {},
        "trains": {},
        "data": collect_item("data", lambda: data_of(tm), problems),
        "progress": {},
        "metrics": {},
        "problems": problems,
    }


def require_names(variables: Sequence[str]) -> tuple[str, ...]:
    """Return names of environment variables; one may be given as it is.

    Raises:
        InputError: they are not texts.
    """
    names = (variables,) if isinstance(variables, str) else variables
    if not isinstance(names, list | tuple | set | frozenset) or not all(isinstance(one, str) and one for one in names):
        what = f"variables must be names of environment variables, but is {variables!r:.60}"
        raise InputError(what, name="variables", asked_by="RunRecord", cure='give a list: variables=["LR", "APP_*"]')
    return tuple(names)


def collect_item(what: str, take: Callable[[], Any], problems: list[str]) -> Any:
    """Return an item of an entry; if taking it fails, return an empty one and add the reason to ``problems``."""
    try:
        found = take()
        json.dumps(found, default=str)  # fails here, with the name of the item, and not as the whole entry is written
        return found
    except Exception as error:  # a failure of the record must not end the run
        problem = f"{what}: {type(error).__name__}: {error!s:.200}"
        if problem not in problems:  # `made` is looked at again in each training call
            problems.append(problem)
        return {}


def say_problems(entry: Mapping[str, Any]) -> None:
    """Warn of the items that could not be recorded."""
    if entry["problems"]:
        text = f"run-{entry['id']}.json lacks a part of this run: {'; '.join(entry['problems'])}"
        warnings.warn(text, RuntimeWarning, stacklevel=users_level())


def now() -> str:
    """Return the time in UTC."""
    return datetime.now(UTC).isoformat(timespec="milliseconds")


def whole(count: Any) -> int | None:
    """Return a count, which may be a tensor; None if it cannot be read, as after an error of the GPU."""
    with suppress(Exception):
        return int(count)
    return None


# ---- the data --------------------------------------------------------------------------------------------------------


def data_of(train_manager: TrainManager) -> dict[str, Any]:
    """Return the fingerprints of all data."""
    sets = {name: fingerprint(data) for name, data in train_manager.eval_data.items()}
    return {"train_data": fingerprint(train_manager.train_data), "eval_data": sets}
