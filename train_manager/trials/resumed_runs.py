"""The runs of one training, each in a fork of this process: to its end, killed after a step, and resumed.

    straight              to its end, nothing is killed
    killed-at-17          a checkpoint after step 17, kill -9
    resumed               from there to the end
    straight-again        only if the two ends differ: does the training itself differ from run to run?

The training needs no change: each TrainManager that it makes gets a ``train_dir`` of its own. As its first run opens,
it gets ``Checkpoints`` if it has none, and an extension that looks at it and kills it. Each run writes a log, and notes
as checkpoints of their own: the state at its end, and values that a checkpoint should restore.
"""

from __future__ import annotations

import importlib
import json
import multiprocessing
import os
import runpy
import signal
import sys
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from typing import Any, Final, final

import numpy as np
import torch
from torch import nn

from train_manager.checkpoints.checkpoint import read_checkpoint, write_checkpoint
from train_manager.checkpoints.left_out import is_of_this_library
from train_manager.checkpoints.state_tree import split
from train_manager.core.declarations import priority
from train_manager.core.extension import Extension
from train_manager.core.fixtures import Fixtures
from train_manager.data.random_state import random_state
from train_manager.extensions.reproducibility.checkpoints import Checkpoints
from train_manager.loop.extension_attributes import MARKS, RESUME, attribute_states, saves_attributes
from train_manager.manager import TrainManager
from train_manager.model.modules import has_state
from train_manager.reporting.values import plural
from train_manager.telling.errors import CheckpointError, InputError

NAME: Final = "verify_resume"  # the name of the extension that looks and kills
# Saved components that are not compared: the open training call and epoch, and the arguments of the manager.
NOT_COMPARED: Final = ("run", "epoch", "parameters")
# The part of a compared state with what extensions hold, and their own `state_dict` leaves out.
LEFT_OUT: Final = "left_out_by_state_dict"
FACTS: Final = "facts.json"  # how far the managers of a run have come
# The notes of a manager, by its number: the random states as its first run begins, the values that a checkpoint should
# restore after a step, and the state at the end.
BEGIN, LOOK, END = "begin-{}", "look-{}-{}", "final-{}"
LOADED: Final = "loaded.json"  # the steps of the checkpoints that a run has loaded
DEEPEST: Final = 3  # levels of attributes that are written down
LAST_LINES: Final = 12  # of the log, which the error about a failed run shows


@final
@dataclass(frozen=True)
class Attempt:
    """What one run does with the training, and where it writes."""

    notes: Path  # the folder of its notes
    train_dirs: Path  # the folder of the train_dirs: "1" is that of the first manager, "2" of the next
    resumes: bool = False  # from the newest checkpoint
    kill_at: int | None = None  # the step after which a checkpoint is written and the process killed; None: no kill
    lose: int = 0  # steps that are done between the checkpoint and the kill
    look_at: tuple[int, ...] = ()  # steps after which the values that a checkpoint should restore are written down


@final
class ResumedRuns:
    """The runs of one training.

    Args:
        train: does the whole training.
        name: the name of the training in messages.
        folder: for logs, folders of notes and the train_dirs of managers.
        say: gets a line as each run begins, and as it has ended; None if the folder is deleted afterwards.

    Raises:
        InputError: this process uses a GPU; CUDA does not work in a fork of such a process.
    """

    def __init__(
        self, train: Callable[[], object], name: str, folder: Path, say: Callable[[str], None] | None = None
    ) -> None:
        if torch.cuda.is_initialized():
            raise InputError(
                "verify_resume() forks this process, which uses a GPU already; a fork of it could not",
                name="make",
                cure="run `train-manager verify-resume SCRIPT`, or call verify_resume before CUDA is used",
            )
        self.name, self.folder = name, folder
        self._train, self._say, self._keeps_logs = train, say or (lambda _: None), say is not None

    def to_its_end(self, name: str, *, resume_at: int | None = None, look_at: Sequence[int] = ()) -> None:
        """Run to the end; with ``resume_at`` from the checkpoint of that step."""
        begins = "runs" if resume_at is None else f"resumes after step {resume_at}"
        self._say(f"{name}: {self.name} {begins} to its end")
        # A run that resumes uses the train_dirs of the killed run, where the checkpoints are.
        attempt = Attempt(
            self.folder / name,
            self._train_dirs(name if resume_at is None else "killed"),
            resumes=resume_at is not None,
            look_at=(*look_at, *([] if resume_at is None else [resume_at])),
        )
        code = self._run(attempt)
        if code:
            raise self._failure(name, f"exit code {code}")
        self._require_resumed(name, resume_at)
        self._say(f"  {plural(max(self.facts(name)['steps'], default=0), 'step')} in all")

    def and_kill(self, step: int, lose: int, resume_at: int | None) -> None:
        """Run until a checkpoint was written after a step and ``lose`` more steps were done, then kill the process."""
        name = f"killed-at-{step}"
        begins = "" if resume_at is None else f"resumes after step {resume_at}, and "
        later = f", {plural(lose, 'step')} later," if lose else ""
        self._say(f"{name}: {self.name} {begins}saves a checkpoint after step {step} and{later} is killed (kill -9)")
        # Values are written down right after the resume and right before the kill.
        attempt = Attempt(
            self.folder / name,
            self._train_dirs("killed"),
            resumes=resume_at is not None,
            kill_at=step,
            lose=lose,
            look_at=(step,) if resume_at is None else (resume_at, step),
        )
        code = self._run(attempt)
        # An exit by itself means that the training ended, or failed, before its kill.
        if code != -signal.SIGKILL:
            raise self._failure(name, f"exit code {code}, not killed after step {step}")
        self._require_resumed(name, resume_at)

    def facts(self, name: str) -> dict[str, Any]:
        """Return the steps and the ends of the epochs of each manager of a run."""
        facts: dict[str, Any] = json.loads((self.folder / name / FACTS).read_text())
        return facts

    def end(self, name: str, manager: int) -> dict[str, Any]:
        """Return the state of a manager, by its number from 1, at the end of a run."""
        return read_checkpoint(self.folder / name / END.format(manager))

    def note(self, name: str, note: str) -> dict[str, Any] | None:
        """Return a note of a run; None if the run has not come so far."""
        path = self.folder / name / note
        return read_checkpoint(path) if path.exists() else None

    def _train_dirs(self, name: str) -> Path:
        return self.folder / f"{name}-train-dirs"

    def _run(self, attempt: Attempt) -> int:
        attempt.notes.mkdir(parents=True)
        log = self._log_of(attempt.notes.name)
        self._say(f"  output in {log}")

        def body() -> None:
            observer = Observer(attempt)
            observer.install()
            self._train()
            observer.finish()

        return run_in_fork(body, log)

    def _log_of(self, name: str) -> Path:
        return self.folder / f"{name}.log"

    def _failure(self, name: str, how: str) -> InputError:
        log = self._log_of(name)
        lines = log.read_text(errors="replace").splitlines()[-LAST_LINES:]
        end = "".join(f"\n    {line}" for line in lines) or " (no output)"
        cure = f"all of it is in {log}" if self._keeps_logs else ""
        return InputError(f"{self.name} failed in the run {name!r} ({how}); its output ended with:{end}", cure=cure)

    def _require_resumed(self, name: str, step: int | None) -> None:
        note = self.folder / name / LOADED
        loaded = json.loads(note.read_text()) if note.exists() else {}
        # Without this check, a run that silently began anew would only be reported as different.
        if step is not None and not any(of_manager >= step for of_manager in loaded.values()):
            what = f"{self.name} did not resume after step {step}: no checkpoint of it was loaded"
            raise InputError(what, cure="a TrainManager must train in this process, with a stage load_checkpoint")


# ---- a process of its own --------------------------------------------------------------------------------------------


def script_as_function(script: Path, arguments: Sequence[str]) -> Callable[[], None]:
    """Return a function that does what ``python script.py arguments...`` does; it changes the process it runs in."""

    def run() -> None:
        sys.argv = [str(script), *arguments]
        sys.path[0] = str(script.resolve().parent)  # where Python puts the folder of a script
        # As in a new interpreter. Python draws a new state for `random` in each fork, but all forks have numpy's state
        # of this process: a training without a seed would seem deterministic.
        np.random.seed()
        try:
            runpy.run_path(str(script), run_name="__main__")
        except SystemExit as end:
            if end.code:
                raise  # sys.exit() with 0 or nothing is a success

    return run


def run_in_fork(body: Callable[[], None], log: Path) -> int:
    """Run a function in a fork of this process, with its output in a file; return the exit code (-9: killed)."""
    # Imported here once: otherwise the first optimizer of each fork takes a second to import it.
    importlib.import_module("torch._dynamo")

    def run() -> None:
        _send_output_to(log)
        warnings.resetwarnings()  # this process, such as a test, may turn warnings into errors
        torch.set_num_threads(1)  # a fork has none of the parent's threads, and would wait for them for ever
        body()

    process: Any = multiprocessing.get_context("fork").Process(target=run)
    with warnings.catch_warnings():
        # Python warns of a fork beside threads; `run` uses none of the threads of this process.
        warnings.simplefilter("ignore", DeprecationWarning)
        process.start()
    process.join()
    return int(process.exitcode)


def _send_output_to(log: Path) -> None:
    file = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    # The descriptors too: code in C and child processes print past sys.stdout.
    os.dup2(file, 1)
    os.dup2(file, 2)
    sys.stdout = open(1, "w", buffering=1, closefd=False)  # noqa: SIM115  # until the process ends
    sys.stderr = open(2, "w", buffering=1, closefd=False)  # noqa: SIM115


def kill() -> None:
    """End this process as a power cut would: nothing is flushed, and no ``finally`` runs."""
    os.kill(os.getpid(), signal.SIGKILL)


# ---- in the fork -----------------------------------------------------------------------------------------------------


@final
class Observer:
    """Observes each TrainManager of a process.

    Args:
        attempt: what the process does with the training.
    """

    def __init__(self, attempt: Attempt) -> None:
        self.attempt = attempt
        self.managers: list[TrainManager] = []  # in the order in which they are made
        self._ready: list[TrainManager] = []  # managers whose first run has opened
        self._resumes: list[bool] = []  # whether each of these would have resumed without the observer

    def install(self) -> None:
        """Observe every TrainManager that this process makes from now on; the process has no other purpose."""
        init, prepare_run = TrainManager.__init__, TrainManager._prepare_run

        @wraps(init)
        def observed_init(manager: TrainManager, *args: Any, **kwargs: Any) -> None:
            init(manager, *args, **kwargs)
            self.managers.append(manager)
            manager.train_dir = self.attempt.train_dirs / str(len(self.managers))

        @wraps(prepare_run)
        def observed_prepare_run(manager: TrainManager, entry: str | None) -> None:
            if not any(manager is one for one in self._ready):
                self._ready.append(manager)
                self._make_ready(manager)
            prepare_run(manager, entry)

        setattr(TrainManager, "__init__", observed_init)  # noqa: B010  # type checkers know methods only
        setattr(TrainManager, "_prepare_run", observed_prepare_run)  # noqa: B010

    def _make_ready(self, manager: TrainManager) -> None:
        own = [one for one in manager._registry.extensions.values() if isinstance(one, Checkpoints)]
        self._resumes.append(any(one.resume is True for one in own))
        for checkpoints in own or [Checkpoints()]:
            checkpoints.mirror = None  # this is another train_dir than the one that the program mirrors
            checkpoints.in_background = False  # a kill after the step must not come before the file is written
            if self.attempt.resumes:
                checkpoints.resume, checkpoints.at = True, "last"
            if not own:
                manager.add_extension(checkpoints)
        number = next(number for number, one in enumerate(self.managers, 1) if one is manager)
        manager.add_extension(KillAndNote(self.attempt, number), NAME)

    def finish(self) -> None:
        """Write the state of each manager; or kill the process, if the kill is due at the end of the training."""
        step, notes = self.attempt.kill_at, self.attempt.notes
        if step is not None and any(one.step_num >= step for one in self.managers):
            kill()
        for number, manager in enumerate(self.managers, 1):
            state = {part: value for part, value in manager.state_dict().items() if part not in NOT_COMPARED}
            state["extensions"] = {name: one for name, one in state["extensions"].items() if name != NAME}
            state["findings"] = [one for one in state["findings"] if one["check"] != RESUME]
            state[LEFT_OUT] = _left_out(manager)
            write_checkpoint(notes, END.format(number), state, {})
        # From the ends of the epochs `verify_resume` chooses a step in the middle of one.
        facts = {
            "steps": [one.step_num for one in self.managers],
            "epochs": [[row["step"] for row in one.history.epochs] for one in self.managers],
            "resumes": all(self._resumes),
        }
        (notes / FACTS).write_text(json.dumps(facts))


@final
class KillAndNote(Extension):
    """Ask for a checkpoint after one step, and kill the process; note what a checkpoint should restore.

    Args:
        attempt: what the process does with the training.
        number: of the manager, from 1.
    """

    def __init__(self, attempt: Attempt, number: int) -> None:
        self._attempt, self._number = attempt, number

    @priority(-1_000_000)  # before Checkpoints restores other random states
    def pre_load_checkpoint(self) -> None:
        self._write(BEGIN.format(self._number), {"random": random_state()})

    def post_load_checkpoint(self, checkpoint_loaded: Path | bool, train_manager: TrainManager) -> None:
        note = self._attempt.notes / LOADED
        if isinstance(checkpoint_loaded, Path):
            loaded = json.loads(note.read_text()) if note.exists() else {}
            loaded[str(self._number)] = train_manager.step_num
            note.write_text(json.dumps(loaded))

    @priority(-1_000_000)  # before other hooks change anything
    def pre_train_step_batch(self, train_manager: TrainManager, fixtures: Fixtures) -> None:
        attempt, done = self._attempt, train_manager.step_num
        if done in attempt.look_at:
            self._write(LOOK.format(self._number, done), _restorable(train_manager, fixtures))
        if attempt.kill_at is not None and done == attempt.kill_at + attempt.lose:
            kill()

    def post_train_step_batch(self, train_manager: TrainManager) -> None:
        if train_manager.step_num == self._attempt.kill_at:
            train_manager.save_soon()

    def _write(self, name: str, values: Mapping[str, Any]) -> None:
        # A manager whose run opens again, or that does a step again, has its first values noted.
        if not (self._attempt.notes / name).exists():
            write_checkpoint(self._attempt.notes, name, {part: _storable(value) for part, value in values.items()}, {})


def _restorable(manager: TrainManager, fixtures: Fixtures) -> dict[str, Any]:
    """Return the values that a checkpoint should restore: attributes, the next batch, random states."""
    known = manager._known_to_checkpoints()
    extensions = {
        # With the states of modules and optimizers, which `_storable` leaves out.
        name: {**vars(one), **attribute_states(one, known), MARKS: None}
        for name, one in manager._registry.extensions.items()
        if _is_looked_at(one)
    }
    # Each run has folders of its own, so a train_dir always differs.
    left_out = ("history", "train_dir")
    own = {key: value for key, value in vars(manager).items() if key not in left_out and not key.startswith("_")}
    return {"extensions": extensions, "manager": own, "batch": fixtures.get("batch"), "random": random_state()}


def _is_looked_at(extension: Extension) -> bool:
    # The attributes of this library's own extensions need no checkpoint beside their states, which are compared.
    return not (isinstance(extension, Checkpoints | KillAndNote) or is_of_this_library(extension))


def _left_out(manager: TrainManager) -> dict[str, Any]:
    """Return what extensions hold, and leave out of the states that their classes write."""
    known, extensions = manager._known_to_checkpoints(), manager._registry.extensions
    found = {name: attribute_states(one, known) for name, one in extensions.items() if not saves_attributes(one)}
    return {name: _storable(one) for name, one in found.items() if one and _is_looked_at(extensions[name])}


def _storable(value: Any, depth: int = 0) -> Any:
    """Return the values inside a value that a checkpoint can hold, with objects as dicts of their attributes."""
    try:
        split(value)
    except CheckpointError:
        pass
    else:
        return value
    # A module or a manager has its own part in the state, and would be written once more here.
    if depth > DEEPEST or isinstance(value, type | nn.Module | TrainManager):
        return None
    if isinstance(value, list | tuple):
        return [_storable(item, depth + 1) for item in value]
    if not isinstance(value, Mapping):
        value = value.state_dict() if has_state(value) else getattr(value, "__dict__", {})
    return {str(key): _storable(item, depth + 1) for key, item in value.items()}
