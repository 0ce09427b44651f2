"""Try all stages of a long training in a short one, so that an error of its third hour is raised now."""

from __future__ import annotations

import io
import math
import shutil
import warnings
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final, final

from torch import Tensor

from train_manager.checkpoints.checkpoint import read_checkpoint
from train_manager.checks.snapshot import Snapshot
from train_manager.core.stage import stage_of
from train_manager.extensions.evaluation.metrics import Metrics
from train_manager.extensions.logging.log import Log
from train_manager.extensions.logging.progress_bar import ProgressBar
from train_manager.extensions.reproducibility.checkpoints import Checkpoints
from train_manager.loop.eval_at import NEVER
from train_manager.loop.ranks import require_whole_model
from train_manager.manager import TrainManager
from train_manager.reporting.values import size_text
from train_manager.telling.findings import Coverage, Finding, Findings
from train_manager.trials.few_batches import FewBatches
from train_manager.trials.held_graphs import STEPS, GraphWatch, holder_of
from train_manager.trials.preserve import preserve_training, require_data, require_manager
from train_manager.trials.raised import finding_of
from train_manager.trials.scratch import DiskUsage, DiskWatch, scratch_folder

STAGES, CHECKPOINT, DISK, GRAPHS = "rehearsal", "checkpoint", "disk", "graphs"
"""The checks, as the findings name them."""

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
    data = {"train_data": tm.train_data, **{f"eval_data[{name!r}]": one for name, one in tm.eval_data.items()}}
    for name, one in data.items():
        require_data(one, name, "rehearse")
    trial = Trial(tm, disk_usage)
    if "eval" in trial.run(data).split(" > "):
        # The error in the evaluation has hidden the stages after it, so these are tried without the evaluation.
        trial.run({"train_data": tm.train_data})
    return Findings(trial.found, trial.covered)


@final
class Trial:
    """A training call that is tried."""

    def __init__(self, train_manager: TrainManager, disk_usage: DiskUsage) -> None:
        self._tm, self._disk_usage = train_manager, disk_usage
        self._rank = train_manager.ranks.place.rank
        self.found: list[Finding] = []
        self.covered: list[Coverage] = []  # the stages and files that were looked at

    def run(self, data: Mapping[str, Any]) -> str:
        """Train on a few batches, evaluate if all sets are given, and return the stage at which it fails."""
        tm = self._tm
        # Distributed pauses: each process rehearses by itself, as none knows whether the others do.
        joins = {name for name, one in tm.extensions.items() if getattr(one, "joined", None) is not None}
        names = [name for name in tm.extensions if name not in tm.paused_extensions | joins]
        with ExitStack() as stack:
            paused = stack.enter_context(preserve_training(tm, (), "rehearse", copied=names))
            for name, why in paused.items():
                self._find(Finding(STAGES, "note", f"extension {name!r} was left out: {why}"))
            for extension in (tm[name] for name in names if name not in paused):
                if isinstance(extension, (Log, Metrics, ProgressBar)):
                    extension.file = io.StringIO()  # a user would take their lines for those of the training
            sets = self._read(data)
            # Hooks may change the batches in place, which are the user's own where the data is a list.
            stack.callback(Snapshot([one.batches for one in sets.values()]).put_back)
            try:
                # All files go to a folder in train_dir, so that they are on the disk of the training.
                if tm.train_dir is not None:
                    tm.train_dir = stack.enter_context(scratch_folder(tm.train_dir, self._rank))
            except OSError as error:
                self._find(finding_of(STAGES, error, before="train_dir cannot be written: "))
                return ""
            planned, setup = max(1, tm.epochs - tm.epoch_num), tm._setup
            # The training call is shortened: one or two epochs of three batches, and an evaluation at its end.
            setup.epochs, setup.steps_per_epoch = tm.epoch_num + min(EPOCHS, planned), None
            tm._eval_at = tm.eval_at._replace(end=True) if len(sets) > len(tm.eval_data) else NEVER
            setup.eval_data = {name: sets.get(f"eval_data[{name!r}]", one) for name, one in tm.eval_data.items()}
            setup.train_data = sets.get("train_data")
            return "" if setup.train_data is None else self._train(planned, [*sets.values()])

    def _read(self, data: Mapping[str, Any]) -> dict[str, FewBatches]:
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
            with tm._adding([graphs, *([] if disk is None else [disk])]), warnings.catch_warnings():
                warnings.filterwarnings("ignore", OF_SHORT_TRAININGS)
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
                    self._find(Finding(STAGES, "warning", f"{name!r} of {of} is {value}", cure=cure))

    def _look_at_graphs(self, held: list[Tensor]) -> None:
        if held:
            what = f"tensors of the first {STEPS - 1} steps are kept with the graphs that they were computed by"
            cure = "keep tensor.detach(), or tensor.item(): with its graph each keeps the memory of a step"
            self._find(Finding(GRAPHS, "error", what, holder_of(held, self._tm), cure, {"tensors": len(held)}))
        self.covered.append(Coverage(GRAPHS, f"what the first {STEPS} steps have left"))

    def _look_at_disk(self, disk: DiskWatch, planned: int) -> None:
        keep = next((one.keep for one in self._tm.extensions.values() if isinstance(one, Checkpoints)), None)
        needed, free = disk.needed(planned, keep), disk.free
        need, room = size_text(needed), size_text(free)
        if needed > free:
            what = f"the disk has {room} free, but {planned} epochs write {need} at least"
            numbers = {"free": free, "needed": needed}
            self._find(Finding(DISK, "error", what, cure="make room, or keep fewer checkpoints", numbers=numbers))
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
        # The second trial, without the evaluation, finds the same once more.
        if all(finding.identity != known.identity for known in self.found):
            self.found.append(finding)
