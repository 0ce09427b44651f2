"""A training that is watched, and killed after a given step: the program in the child process of ``verify_resume``.

The script or function needs no change: each TrainManager that it makes gets a ``train_dir`` of its own. As its first
run opens, it gets ``Checkpoints`` if it has none, and an extension that watches. At the end its state is written.

    python -c "from train_manager.trials.driven import main; main()" plan.json script.py arguments...
"""

from __future__ import annotations

import json
import os
import runpy
import signal
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from typing import Any, Final

from torch import nn

from train_manager.checkpoints.checkpoint import write_checkpoint
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
from train_manager.telling.errors import CheckpointError

NAME: Final = "verify_resume"  # the name of the extension that watches
# Saved components that are not compared: the open training call and epoch, and the arguments of the manager.
NOT_COMPARED: Final = ("run", "epoch", "parameters")
# The part of a compared state with what extensions hold, and their own `state_dict` leaves out.
LEFT_OUT: Final = "left_out_by_state_dict"
FACTS: Final = "facts.json"  # how far the managers of a run have come
LOADED: Final = "loaded.json"  # the steps of the checkpoints that a run has loaded
DEEPEST: Final = 3  # levels of attributes that are written down


@dataclass(frozen=True)
class Plan:
    """The instructions for one run."""

    train_dirs: str = ""  # the folder of the train_dirs: "1" is that of the first manager, "2" of the next
    notes: str = ""  # the folder for the states and attributes that the run writes down
    kill_at: int | None = None  # the step after which a checkpoint is written and the process killed; None: no kill
    lose: int = 0  # steps that are done between the checkpoint and the kill
    resume: bool = False  # whether the run resumes from the newest checkpoint
    look_at: tuple[int, ...] = ()  # steps after which the attributes of extensions are written down


class Driver:
    """Drives each TrainManager of a process."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.notes = Path(plan.notes)
        self.managers: list[TrainManager] = []  # in the order in which they are made
        self._ready: list[TrainManager] = []  # managers whose first run has opened
        self._resumes: list[bool] = []  # whether each of these would have resumed without the driver

    def install(self) -> None:
        """Drive every TrainManager that this process makes from now on; the process has no other purpose."""
        init, prepare_run = TrainManager.__init__, TrainManager._prepare_run

        @wraps(init)
        def driven_init(manager: TrainManager, *args: Any, **kwargs: Any) -> None:
            init(manager, *args, **kwargs)
            self.managers.append(manager)
            manager.train_dir = Path(self.plan.train_dirs, str(len(self.managers)))

        @wraps(prepare_run)
        def driven_prepare_run(manager: TrainManager, entry: str | None) -> None:
            if not any(manager is one for one in self._ready):
                self._ready.append(manager)
                self._make_ready(manager)
            prepare_run(manager, entry)

        setattr(TrainManager, "__init__", driven_init)  # noqa: B010  # type checkers know methods only
        setattr(TrainManager, "_prepare_run", driven_prepare_run)  # noqa: B010

    def _make_ready(self, manager: TrainManager) -> None:
        own = [one for one in manager._registry.extensions.values() if isinstance(one, Checkpoints)]
        self._resumes.append(any(one.resume is True for one in own))
        for checkpoints in own or [Checkpoints()]:
            checkpoints.in_background = False  # a kill after the step must not come before the file is written
            if self.plan.resume:
                checkpoints.resume, checkpoints.at = True, "last"
            if not own:
                manager.add_extension(checkpoints)
        manager.add_extension(Watch(self), NAME)

    def number_of(self, manager: TrainManager) -> int:
        """Return the number of a manager, from 1."""
        return next(number for number, one in enumerate(self.managers, 1) if one is manager)

    def look(self, manager: TrainManager, fixtures: Fixtures) -> None:
        """Write down the values that a checkpoint should restore: attributes, the next batch, random states."""
        name = look_name(self.number_of(manager), manager.step_num)
        if (self.notes / name).exists():
            return
        known = manager._known_to_checkpoints()
        extensions = {
            # With the states of modules and optimizers, which `_storable` leaves out.
            name: {**vars(one), **attribute_states(one, known), MARKS: None}
            for name, one in manager._registry.extensions.items()
            if _is_looked_at(one)
        }
        own = {key: value for key, value in vars(manager).items() if key != "history" and not key.startswith("_")}
        # Each run has folders of its own, so a train_dir always differs.
        own.pop("train_dir", None)
        seen = {"extensions": extensions, "manager": own, "batch": fixtures.get("batch"), "random": random_state()}
        write_checkpoint(self.notes, name, {part: _storable(value) for part, value in seen.items()}, {})

    def finish(self) -> None:
        """Write the state of each manager; or kill the process, if the kill is due at the end of the training."""
        if self.plan.kill_at is not None and any(one.step_num >= self.plan.kill_at for one in self.managers):
            kill()
        for number, manager in enumerate(self.managers, 1):
            state = {part: value for part, value in manager.state_dict().items() if part not in NOT_COMPARED}
            state["extensions"] = {name: one for name, one in state["extensions"].items() if name != NAME}
            state["findings"] = [one for one in state["findings"] if one["check"] != RESUME]
            state[LEFT_OUT] = _left_out(manager)
            write_checkpoint(self.notes, f"final-{number}", state, {})
        # From the ends of the epochs `verify_resume` chooses a step in the middle of one.
        facts = {
            "steps": [one.step_num for one in self.managers],
            "epochs": [[row["step"] for row in one.history.epochs] for one in self.managers],
            "resumes": all(self._resumes),
        }
        (self.notes / FACTS).write_text(json.dumps(facts))


class Watch(Extension):
    """Ask for a checkpoint after one step, and kill the process; note which checkpoint was loaded."""

    def __init__(self, driver: Driver) -> None:
        self._driver = driver

    @priority(-1_000_000)  # before Checkpoints restores other random states
    def pre_load_checkpoint(self, train_manager: TrainManager) -> None:
        name = begin_name(self._driver.number_of(train_manager))
        if not (self._driver.notes / name).exists():
            write_checkpoint(self._driver.notes, name, {"random": random_state()}, {})

    def post_load_checkpoint(self, checkpoint_loaded: Path | bool, train_manager: TrainManager) -> None:
        note = self._driver.notes / LOADED
        if isinstance(checkpoint_loaded, Path):
            loaded = json.loads(note.read_text()) if note.exists() else {}
            loaded[str(self._driver.number_of(train_manager))] = train_manager.step_num
            note.write_text(json.dumps(loaded))

    @priority(-1_000_000)  # before other hooks change anything
    def pre_train_step_batch(self, train_manager: TrainManager, fixtures: Fixtures) -> None:
        plan, done = self._driver.plan, train_manager.step_num
        if done in plan.look_at:
            self._driver.look(train_manager, fixtures)
        if plan.kill_at is not None and done == plan.kill_at + plan.lose:
            kill()

    def post_train_step_batch(self, train_manager: TrainManager) -> None:
        if train_manager.step_num == self._driver.plan.kill_at:
            train_manager.save_soon()


def kill() -> None:
    """End this process as a power cut would: nothing is flushed, and no ``finally`` runs."""
    os.kill(os.getpid(), signal.SIGKILL)


def look_name(manager: int, step: int) -> str:
    """Return the name of the checkpoint that ``Driver.look`` writes."""
    return f"look-{manager}-{step}"


def begin_name(manager: int) -> str:
    """Return the name of the checkpoint with the random states at the beginning of a manager's first run."""
    return f"begin-{manager}"


def _is_looked_at(extension: Extension) -> bool:
    # The attributes of this library's own extensions need no checkpoint beside their states, which are compared.
    return not (isinstance(extension, Checkpoints | Watch) or is_of_this_library(extension))


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


def main() -> None:
    """Run a script as ``python script.py arguments...`` does, and drive it."""
    plan_file, script = sys.argv[1:3]
    plan = json.loads(Path(plan_file).read_text())
    driver = Driver(Plan(**{**plan, "look_at": tuple(plan["look_at"])}))
    sys.argv = sys.argv[2:]
    # `python script.py` puts the folder of the script there; here it is that of this file.
    sys.path[0] = str(Path(script).resolve().parent)
    driver.install()
    try:
        runpy.run_path(script, run_name="__main__")
    except SystemExit as end:
        if end.code:
            raise  # sys.exit() with 0 or nothing is a success
    driver.finish()
