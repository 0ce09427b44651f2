"""Try all of a long training in a short one: what would fail in its third hour fails now."""

from __future__ import annotations

import math
import shutil
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, final

from torch import Tensor

from train_manager.checkpoints.checkpoint import read_checkpoint
from train_manager.checkpoints.checkpoint_folder import CheckpointFolder
from train_manager.core.extension import Extension
from train_manager.data.iteration import is_read_once
from train_manager.loop.eval_at import NEVER
from train_manager.manager import TrainManager
from train_manager.telling.errors import InputError, StageError
from train_manager.telling.findings import Coverage, Finding, Findings
from train_manager.tools.few_batches import FewBatches
from train_manager.tools.held_graphs import STEPS, GraphWatch, holder_of
from train_manager.tools.preserve import preserved_training
from train_manager.tools.raised import finding_of, stages_of
from train_manager.tools.scratch import DiskUsage, Written, bytes_planned, scratch_folder

STAGES, CHECKPOINT, DISK, GRAPHS = "rehearsal", "checkpoint", "disk", "graphs"
"""The checks, as the findings name them."""

EPOCHS: Final = 2
"""So many are rehearsed: from the second on it is known how much each of them writes."""


def rehearse(train_manager: TrainManager, *, disk_usage: DiskUsage = shutil.disk_usage) -> Findings:
    """Train two epochs of three batches with all extensions, evaluate, save and load, and put everything back.

    The batches are the first two and the last of each set. So every stage and every hook runs within seconds: an error
    that a training would meet at the end of its first epoch, or with the last batch of an evaluation set, is found
    before it begins.

    >>> from train_manager import Extension
    >>> from train_manager.testing import tiny_manager
    >>> class Summary(Extension):
    ...     def post_train_step_epoch(self, train_result):
    ...         print(train_result["accuracy"])
    >>> tm = tiny_manager(Summary(), epochs=100)
    >>> print(rehearse(tm)[0].what)
    KeyError: 'accuracy' (at stage run > train > train_step_epoch)
    >>> tm.step_num
    0

    Also found: a checkpoint that cannot be loaded, a disk that has too little room for what is planned, figures that
    are not finite, and tensors that are kept with their graphs, which fill the memory.

    Files are written into ``.rehearsal`` in ``train_dir``, which is removed again. Extensions work on copies of what
    they hold; those that send figures away, or cannot be copied, pause, and a note says so. A training after it is, to
    the bit, the training without it. Models and optimizers are copied meanwhile, which takes as much memory again.

    Args:
        train_manager: what will train; no run of it may be open.
        disk_usage: says how much room there is, as ``shutil.disk_usage`` does.

    Returns:
        What was found, with the user's line where an error was raised; its traceback is in
        ``finding.numbers["traceback"]``.

    Raises:
        InputError: the data can be read only once, there are none, or the model has lazy parameters.
        StageError: a run is open.
    """
    _require_closed(train_manager)
    trial = Trial(train_manager, disk_usage, _require_data(train_manager))
    trial.run(evaluates=True)
    if trial.failed_in_evaluation:  # what comes after it would stay unseen
        trial.run(evaluates=False)
    return Findings(trial.found, trial.covered)


@final
@dataclass
class Trial:
    """A training that is tried, and what it has shown.

    Attributes:
        train_manager: what trains.
        disk_usage: how much room there is.
        sets: what it trains on, and then what it evaluates.
        found: what was found.
        covered: what was looked at.
        failed_in_evaluation: an error has ended it there.
    """

    train_manager: TrainManager
    disk_usage: DiskUsage
    sets: list[FewBatches]
    found: list[Finding] = field(default_factory=list)
    covered: list[Coverage] = field(default_factory=list)
    failed_in_evaluation: bool = False

    def run(self, *, evaluates: bool) -> None:
        """Train what is rehearsed, with or without evaluations."""
        tm = self.train_manager
        names = [name for name in tm.extensions if name not in tm.paused_extensions]
        with preserved_training(tm, (), "rehearse", copied=names) as preserved:
            for name, why in preserved.paused.items():
                self._find(Finding(STAGES, "note", f"extension {name!r} was left out: {why}"))
            planned, setup = max(1, tm.epochs - tm.epoch_num), tm._setup
            setup.epochs, setup.steps_per_epoch = tm.epoch_num + EPOCHS, None
            setup.train_data, setup.eval_data = self.sets[0], dict(zip(tm.eval_data, self.sets[1:], strict=True))
            tm._eval_at = tm.eval_at._replace(end=True) if evaluates else NEVER
            with ExitStack() as stack:
                try:
                    folder = stack.enter_context(scratch_folder(tm.train_dir))
                except OSError as error:
                    self._find(finding_of(STAGES, error, before="train_dir cannot be written: "))
                    return
                if tm.train_dir is not None:
                    tm.train_dir = folder
                self._rehearse(folder, planned)

    def _rehearse(self, folder: Path, planned: int) -> None:
        tm, graphs, files = self.train_manager, GraphWatch(), FileWatch(folder)
        steps, free, known = tm.step_num, self.disk_usage(folder).free, len(tm.findings)
        try:
            with ExitStack() as stack:
                for name, extension in {"_graphs": graphs, "_files": files}.items():
                    tm.add_extension(extension, name)
                    stack.callback(tm.remove_extension, name)
                tm.train()
        except Exception as error:  # whatever the training raises is what is looked for
            self._note_error(error)
            self.covered.append(Coverage(STAGES, f"up to step {tm.step_num - steps + 1}"))
            return
        finally:
            for finding in tm.findings[known:]:  # of checks that are among the extensions
                self._find(finding)
        self._look_at_figures()
        self._cover_stages(tm.step_num - steps)
        self._look_at_graphs(graphs.held)
        if tm.train_dir is not None:
            self._look_at_disk(files, free, planned)
            self._load_checkpoint(folder)

    # ---- what is looked at ---------------------------------------------------------------------------------------

    def _cover_stages(self, steps: int) -> None:
        sets = self.sets[:1] if self.failed_in_evaluation else self.sets  # then evaluations are left out
        names = ", ".join(one.name for one in sets)
        text = f"{steps} steps in {EPOCHS} epochs; of {names} the first batches and the last"
        text += "".join(f"; {one.missed}" for one in self.sets if one.missed)
        if self.train_manager.train_dir is None:
            text += "; there is no train_dir, so the disk was not looked at"
        self.covered.append(Coverage(STAGES, text))

    def _look_at_figures(self) -> None:
        history = self.train_manager.history
        for row in (*history.epochs, *history.evaluations):
            for name, value in row.items():
                if isinstance(value, float) and not math.isfinite(value):
                    of = f"set {row['set']!r}" if "set" in row else "the training"
                    cure = "is it divided by zero? a batch may have no example of a class"
                    self._find(Finding(STAGES, "warning", f"{name!r} of {of} is {value}", cure=cure))

    def _look_at_graphs(self, held: list[Tensor] | None) -> None:
        if held is None:  # fewer steps
            return
        if held:
            what = f"tensors of the first {STEPS - 1} steps are kept with the graphs that they were computed by"
            cure = "keep tensor.detach(), or tensor.item(): with its graph each keeps the memory of a step"
            where = holder_of(held, self.train_manager)
            self._find(Finding(GRAPHS, "error", what, where, cure, {"tensors": len(held)}))
        self.covered.append(Coverage(GRAPHS, f"what the first {STEPS} steps have left"))

    def _look_at_disk(self, files: FileWatch, free: int, planned: int) -> None:
        written = Written.in_folder(files.folder)
        saving = [one for one in self.train_manager.extensions.values() if hasattr(one, "pre_save_checkpoint")]
        keep = next((one.keep for one in saving if hasattr(one, "keep")), None)
        needed = bytes_planned(files.after_first or written, written, planned, keep)
        if needed > free:
            what = f"the disk has {_shown(free)} free, but {planned} epochs write {_shown(needed)} at least"
            numbers = {"free": free, "needed": needed}
            self._find(Finding(DISK, "error", what, cure="make room, or keep fewer checkpoints", numbers=numbers))
        self.covered.append(Coverage(DISK, f"{_shown(needed)} of {_shown(free)} that are free, for {planned} epochs"))

    def _load_checkpoint(self, folder: Path) -> None:
        tm, saved = self.train_manager, CheckpointFolder(folder / "checkpoints").checkpoints()
        if not saved:
            return
        try:
            state = read_checkpoint(saved[-1])
            if "model" in state:
                state["model"] = {**tm.model.state_dict(), **state["model"]}  # what Checkpoints(exclude=...) leaves out
            tm.load_state_dict(state)
        except Exception as error:  # whatever an extension raises
            self._find(finding_of(CHECKPOINT, error, before="a checkpoint cannot be loaded again: "))
        self.covered.append(Coverage(CHECKPOINT, "the last one that was saved was loaded again"))

    # ---- what is found -------------------------------------------------------------------------------------------

    def _find(self, finding: Finding) -> None:
        if all(finding.identity != known.identity for known in self.found):
            self.found.append(finding)

    def _note_error(self, error: Exception) -> None:
        stages = stages_of(error)
        self.failed_in_evaluation = "eval" in stages
        reading = [one.place for one in self.sets if one.is_reading]
        among = self.sets[1:] if "eval_step_batch" in stages else self.sets if "train_step_batch" in stages else []
        place = next(iter([*reading, *(one.place for one in among if one.place)]), "")
        self._find(finding_of(STAGES, error, place=place))


@final
class FileWatch(Extension):
    """Asks for a checkpoint, and notes what lies in a folder as the second epoch begins.

    Attributes:
        after_first: what lay there.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.after_first: Written | None = None
        self._begun = 0

    def pre_train(self, train_manager: TrainManager) -> None:
        if any(hook.stage == "save_checkpoint" for hook in train_manager._registry.hooks):
            train_manager.save_soon(at="end")  # one that is saved now and then is not due in so few steps

    def pre_train_step_epoch(self) -> None:
        self._begun += 1
        if self._begun == EPOCHS:
            self.after_first = Written.in_folder(self.folder)


# ---- before it -------------------------------------------------------------------------------------------------------


def _require_closed(given: TrainManager) -> None:
    if not isinstance(given, TrainManager):
        what = f"rehearse takes a TrainManager, but was given a {type(given).__name__}"
        raise InputError(what, name="train_manager", cure="tm = TrainManager(model=model, ...), then rehearse(tm)")
    if "run" in given.fixtures.path:
        what = "rehearse cannot be called while a run is open"
        raise StageError(what, stages=given.fixtures.path, cure="call it before the run, or after it")


def _require_data(train_manager: TrainManager) -> list[FewBatches]:
    """Return a few batches of each set; refuse data that would be gone after the rehearsal, before any are read."""
    if train_manager.train_data is None:
        raise InputError("there is no train_data to rehearse", name="train_data", cure="pass train_data=batches")
    sets = {f"eval_data[{name!r}]": data for name, data in train_manager.eval_data.items()}
    sets = {"train_data": train_manager.train_data, **sets}
    for name, data in sets.items():
        if is_read_once(data):
            what = f"{name} is a {type(data).__name__}, which can be read once, so its batches cannot be put back"
            raise InputError(what, name=name, cure="give a list, a DataLoader, or an object with __iter__")
    return [FewBatches(data, name) for name, data in sets.items()]


def _shown(size: float) -> str:
    for unit in ("bytes", "kB", "MB", "GB"):
        if size < 1000:
            return f"{size:.3g} {unit}"
        size /= 1000
    return f"{size:.3g} TB"
