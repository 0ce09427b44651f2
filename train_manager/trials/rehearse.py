"""Try all stages of a long training in a short one, so that an error of its third hour is raised now."""

from __future__ import annotations

import gc
import math
import shutil
import sysconfig
import traceback
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any, Final, final

from torch import Tensor, nn
from torch.utils.weak import WeakIdKeyDictionary

from train_manager.checkpoints.checkpoint import read_checkpoint
from train_manager.checkpoints.checkpoint_folder import CheckpointFolder
from train_manager.core.extension import Extension
from train_manager.core.stage import stage_of
from train_manager.extensions.reproducibility.checkpoints import Checkpoints
from train_manager.loop.ranks import require_whole_model
from train_manager.manager import TrainManager
from train_manager.reporting.values import size_text
from train_manager.telling.errors import TrainManagerError
from train_manager.telling.findings import Coverage, Finding, Findings
from train_manager.telling.source_locations import display_path
from train_manager.trials.few_batches import FewBatches
from train_manager.trials.trial import TRAIN_DATA, Trial, data_of, require_manager, working

STAGES, CHECKPOINT, DISK, GRAPHS = "rehearsal", "checkpoint", "disk", "graphs"
"""The checks, as the findings name them."""

STEPS: Final = 3
"""The steps after which the graphs of earlier ones must be freed."""
LOOKED_AT: Final = 20_000
"""The objects that are searched below one attribute for the holder of a graph."""
BESIDE_KEPT: Final = 2
"""Checkpoints on the disk beside those that ``keep`` counts: the best one, and the one that is being written."""
LIBRARIES: Final = (str(Path(__file__).parents[1]), sysconfig.get_path("stdlib"), "<")
"""The prefixes of paths that are not the user's: of this library, of Python, and of generated code."""
DiskUsage = Callable[[Path], Any]
"""``shutil.disk_usage``, or a function like it: its result has the free bytes as ``free``."""

EPOCHS: Final = 2
"""The most epochs of a rehearsal: the second one shows how many bytes each further epoch writes."""
OF_SHORT_TRAININGS: Final = "more than half of the average of EMA"
"""How a finding begins that a rehearsal has because it is short."""


def rehearse(train_manager: TrainManager, *, disk_usage: DiskUsage = shutil.disk_usage) -> Findings:
    """Train two epochs of three batches with all extensions, evaluate, save and load, and put everything back.

    It is one epoch if only one is left. The batches are the first two and the last of each set. So every stage and
    every hook runs within seconds: an error that a run would meet at the end of its first epoch, or with the last
    batch of an evaluation set, is found before it begins.

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

    Also found: a checkpoint that cannot be loaded, a disk that has too little room for what is planned, metrics that
    are not finite, and tensors that are kept with their graphs, which fill the memory.

    Files are written into ``.rehearsal`` in ``train_dir``, which is removed again. Extensions work on copies of their
    attributes; extensions that send metrics away, or cannot be copied, pause, and a note says so. ``Log``, ``Metrics``
    and ``ProgressBar`` run, and print nothing. A training after it equals, to the bit, a training without it; variables
    that a function has assigned with ``nonlocal`` or ``global`` are not put back. Models and optimizers are copied
    meanwhile, which takes as much memory again.

    Args:
        train_manager: the manager that will train; no run of it may be open.
        disk_usage: returns the free bytes of a disk, as ``shutil.disk_usage`` does.

    Returns:
        The findings, with the user's line where an error was raised; its traceback is in
        ``finding.numbers["traceback"]``.

    Raises:
        InputError: the data can be read only once, there are none, or the model has lazy parameters.
        StageError: a run is open.
    """
    tm = require_manager(train_manager, "rehearse")
    require_whole_model(tm.ranks, "rehearse")
    data = data_of(tm, "rehearse", of_evaluations=True)
    rehearsal = Rehearsal(tm, disk_usage)
    if "eval" in rehearsal.run(data).split(" > "):
        # The error in the evaluation has hidden the stages after it, so these are tried without the evaluation.
        rehearsal.run({TRAIN_DATA: data[TRAIN_DATA]})
    return Findings(rehearsal.found, rehearsal.covered)


@final
class Rehearsal:
    """The rehearsal of a training: what it has found, and what it has looked at.

    Args:
        train_manager: the manager of the training.
        disk_usage: returns the free bytes of a disk.
    """

    def __init__(self, train_manager: TrainManager, disk_usage: DiskUsage) -> None:
        self._tm, self._disk_usage = train_manager, disk_usage
        self.found: list[Finding] = []
        self.covered: list[Coverage] = []  # the stages and files that were looked at

    def run(self, data: Mapping[str, Iterable[Any]]) -> str:
        """Train on a few batches, evaluate if all sets are given, and return the stage at which it fails."""
        planned = max(1, self._tm.epochs - self._tm.epoch_num)
        with Trial(self._tm, "rehearse", copied=working(self._tm)) as trial:
            for name, why in trial.left_out.items():
                self._find(
                    Finding(STAGES, "note", f"extension {name!r} was left out: {why}", code="extension-left-out")
                )
            sets = self._read(data)
            try:
                trial.move_files()
            except OSError as error:
                self._find(finding_of(STAGES, error, before="train_dir cannot be written: "))
                return ""
            if TRAIN_DATA not in sets:
                return ""
            trial.shorten(min(EPOCHS, planned), sets)
            return self._train(planned, [*sets.values()])

    def _read(self, data: Mapping[str, Iterable[Any]]) -> dict[str, FewBatches]:
        sets = {}
        for name, one in data.items():
            try:
                sets[name] = FewBatches(one, name)
            except Exception as error:  # a dataset may raise anything
                self._find(finding_of(STAGES, error, place=f"a batch of {name} that was being read"))
                self.covered.append(Coverage(STAGES, f"nothing of {name}, which cannot be read"))
        return sets

    def _train(self, planned: int, sets: list[FewBatches]) -> str:
        tm, graphs = self._tm, GraphWatch()
        disk = None if tm.train_dir is None else DiskWatch(tm.train_dir, self._disk_usage)
        steps, known = tm.step_num, len(tm.findings)
        try:
            with tm._adding([graphs, *([] if disk is None else [disk])]):
                tm.train()
        except Exception as error:  # an error of the training is the finding
            # The set of an evaluation comes first: the training set also has an open batch then.
            place = next((one.place for one in reversed(sets) if one.place), "")
            self._find(finding_of(STAGES, error, place=place))
            self.covered.append(Coverage(STAGES, f"up to step {tm.step_num - steps + 1}"))
            return stage_of(error) or ""
        finally:
            for finding in tm.findings[known:]:  # extensions that check have added these
                if not finding.what.startswith(OF_SHORT_TRAININGS):
                    self._find(finding)
        self._look_at_metrics()
        self._cover_stages(tm.step_num - steps, min(EPOCHS, planned), sets)
        if graphs.held is not None:  # None: the training has fewer steps than the watch needs
            self._look_at_graphs(graphs.held)
        if disk is not None:
            self._look_at_disk(disk, planned)
            self._load_checkpoint(disk.checkpoints())
        return ""

    def _cover_stages(self, steps: int, epochs: int, sets: list[FewBatches]) -> None:
        names = ", ".join(one.name for one in sets)
        text = f"{steps} steps in {epochs} epoch{'s' if epochs > 1 else ''}; of {names} the first batches and the last"
        text += "".join(f"; {one.missed}" for one in sets if one.missed)
        if self._tm.train_dir is None:
            text += "; there is no train_dir, so the disk was not looked at"
        self.covered.append(Coverage(STAGES, text))

    def _look_at_metrics(self) -> None:
        history = self._tm.history
        for row in (*history.epochs, *history.evaluations):
            for name, value in row.items():
                if isinstance(value, float) and not math.isfinite(value):
                    of = f"set {row['set']!r}" if "set" in row else "the training"
                    cure = "is it divided by zero? a batch may have no example of a class"
                    self._find(
                        Finding(STAGES, "warning", f"{name!r} of {of} is {value}", cure=cure, code="metric-not-finite")
                    )

    def _look_at_graphs(self, held: list[Tensor]) -> None:
        if held:
            what = f"tensors of the first {STEPS - 1} steps are kept with the graphs that they were computed by"
            cure = "keep tensor.detach(), or tensor.item(): with its graph each keeps the memory of a step"
            where, numbers = holder_of(held, self._tm), {"tensors": len(held)}
            self._find(Finding(GRAPHS, "error", what, where, cure, numbers, code="graph-kept"))
        self.covered.append(Coverage(GRAPHS, f"what the first {STEPS} steps have left"))

    def _look_at_disk(self, disk: DiskWatch, planned: int) -> None:
        keep = next((one.keep for one in self._tm.extensions.values() if isinstance(one, Checkpoints)), None)
        needed, free = disk.needed(planned, keep), disk.free
        need, room = size_text(needed), size_text(free)
        if needed > free:
            what = f"the disk has {room} free, but {planned} epochs write {need} at least"
            numbers = {"free": free, "needed": needed}
            cure = "make room, or keep fewer checkpoints"
            self._find(Finding(DISK, "error", what, "", cure, numbers, code="disk-too-small"))
        self.covered.append(Coverage(DISK, f"{need} of {room} that are free, for {planned} epochs"))

    def _load_checkpoint(self, saved: list[Path]) -> None:
        tm = self._tm
        if not saved:
            return
        try:
            state = read_checkpoint(saved[-1])
            if "model" in state:
                # Checkpoints(exclude=..., or only=...) leaves names out, which load_state_dict would miss.
                state["model"] = {**tm.model.state_dict(), **state["model"]}
            tm.load_state_dict(state)
        except Exception as error:  # load_state_dict of an extension may raise anything
            self._find(finding_of(CHECKPOINT, error, before="a checkpoint cannot be loaded again: "))
        self.covered.append(Coverage(CHECKPOINT, "the last one that was saved was loaded again"))

    def _find(self, finding: Finding) -> None:
        # The second run, without the evaluation, finds the same once more.
        if all(finding.identity != known.identity for known in self.found):
            self.found.append(finding)


# ---- the graphs of earlier steps -------------------------------------------------------------------------------------


@final
class GraphWatch(Extension):
    """Notes the tensors with a graph that are alive after each of the first steps.

    Attributes:
        held: the tensors of steps 1 and 2 that are alive after step 3, if each of the two has left some; else an empty
            list. None before step 3.
    """

    priority = 1_000_000  # after the hooks of other extensions

    def __init__(self) -> None:
        self.held: list[Tensor] | None = None
        # Of each tensor the step after which it was first seen; weak, so that this watch keeps no graph alive.
        self._first_seen: Any = WeakIdKeyDictionary()
        self._step = 0

    def pre_train(self) -> None:
        self._note()

    def post_train_step_batch(self) -> None:
        self._step += 1
        if self._step <= STEPS:
            self._note()
        if self._step == STEPS:
            # One held graph, such as that of the last loss, is usual: only a graph of every step fills the memory.
            steps = {step for step in self._first_seen.values() if 0 < step < STEPS}
            grows = len(steps) == STEPS - 1
            self.held = [one for one, step in self._first_seen.items() if step in steps] if grows else []

    def _note(self) -> None:
        for one in tensors_with_graphs():
            self._first_seen.setdefault(one, self._step)


def tensors_with_graphs() -> list[Tensor]:
    """Return all live tensors that have a graph: those that an operation has computed from inputs with gradients."""
    # isinstance() would ask an object for its __class__, which makes lazy proxies load what they stand for.
    found = [one for one in gc.get_objects() if issubclass(type(one), Tensor)]
    return [one for one in found if one.grad_fn is not None]


def holder_of(tensors: Iterable[Tensor], train_manager: Any) -> str:
    """Return which attribute of an extension, a module or the manager leads to one of the tensors; empty if none."""
    owners: dict[str, Any] = {f"extension {name!r}": one for name, one in train_manager.extensions.items()}
    if isinstance(train_manager.model, nn.Module):
        modules = train_manager.model.named_modules()
        owners |= {f"module {name!r}" if name else "the model": module for name, module in modules}
    owners[type(train_manager).__name__] = train_manager
    wanted, apart = {id(one) for one in tensors}, {id(one) for one in owners.values()}
    for label, owner in owners.items():
        for name, value in {**vars(type(owner)), **vars(owner)}.items():
            if _leads_to(value, wanted, apart):
                return f"{label}, attribute {name!r}"
    return ""


def _leads_to(value: object, wanted: set[int], apart: set[int]) -> bool:
    """Return whether a chain of references from an object leads to a wanted one, without passing another owner."""
    ahead, seen = deque([value]), {*apart}
    while ahead and len(seen) < LOOKED_AT + len(apart):
        one = ahead.popleft()
        if id(one) in wanted:
            return True
        # Modules of Python and classes refer to nearly everything; tensors and layers have owners of their own.
        if id(one) not in seen and not isinstance(one, (ModuleType, type, Tensor, nn.Module)):
            seen.add(id(one))
            ahead += (one.__closure__ or ()) if isinstance(one, FunctionType) else gc.get_referents(one)
    return False


# ---- the bytes on the disk -------------------------------------------------------------------------------------------


@final
class DiskWatch(Extension):
    """Asks for a checkpoint, and measures the bytes that a run of two epochs writes into a folder.

    Attributes:
        free: the bytes of the disk that were free before the run.
    """

    def __init__(self, folder: Path, disk_usage: DiskUsage) -> None:
        self._folder, self._before_last = folder, 0
        self.free: int = disk_usage(folder).free

    def pre_train(self, train_manager: TrainManager) -> None:
        train_manager.save_soon(at="end")  # a schedule such as every(1000) would save none in so few steps

    def pre_train_step_epoch(self) -> None:
        self._before_last = self._beside_checkpoints()  # at the beginning of the last epoch

    def needed(self, epochs: int, keep: int | None) -> int:
        """Return the bytes that a run will need at least.

        Args:
            epochs: how many epochs the run has.
            keep: the argument of ``Checkpoints``.
        """
        largest = max(map(_size_of, self.checkpoints()), default=0)
        count = epochs if keep is None else min(keep + BESIDE_KEPT, epochs + 1)
        rest = self._beside_checkpoints()
        # The files of the two rehearsed epochs, and the growth of the last one for each further epoch.
        return largest * count + rest + max(0, rest - self._before_last) * max(0, epochs - 2)

    def checkpoints(self) -> list[Path]:
        """Return the checkpoints in the folder, oldest first."""
        return CheckpointFolder(self._folder / "checkpoints").checkpoints()

    def _beside_checkpoints(self) -> int:
        return _size_of(self._folder) - _size_of(self._folder / "checkpoints")


def _size_of(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


# ---- errors ----------------------------------------------------------------------------------------------------------


def finding_of(check: str, error: Exception, *, before: str = "", place: str = "") -> Finding:
    """Return an error as a finding, with its class as the code and its traceback among the numbers.

    Args:
        check: the check in which the error was raised.
        error: the error.
        before: the first words of the finding.
        place: the batch with which it was raised, in words.
    """
    text, cure = (error.what, error.cure) if isinstance(error, TrainManagerError) else (str(error), "")
    stage, kind = stage_of(error), type(error).__name__
    at = ", ".join([*([f"at stage {stage}"] if stage else []), *([f"with {place}"] if place else [])])
    what = f"{before}{kind}{f': {text}' if text else ''}{f' ({at})' if at else ''}"
    numbers = {"traceback": "".join(traceback.format_exception(error))}
    return Finding(check, "error", what, _line_in(error), cure, numbers, code=kind)


def _line_in(error: BaseException) -> str:
    """Return the innermost line of the user's code in the traceback of an error; empty if there is none."""
    lines = traceback.extract_tb(error.__traceback__)
    of_user = [one for one in lines if not one.filename.startswith(LIBRARIES) and "site-packages" not in one.filename]
    # The last frame of the user: deeper ones are of libraries, where the user can change nothing.
    return "".join(f"{display_path(one.filename)}:{one.lineno} in {one.name}" for one in of_user[-1:])
