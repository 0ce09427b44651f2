"""Kill a training, resume it, and compare its end with the end of an uninterrupted run."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from train_manager.manager import TrainManager
from train_manager.telling.errors import InputError
from train_manager.trials.killed_runs import Runs, plural
from train_manager.trials.processes import runs_of_function, runs_of_script
from train_manager.trials.resume_report import ResumeReport, causes_of, differences_of, no_cause
from train_manager.validation import require_count


def verify_resume(
    make: Callable[[], TrainManager],
    *,
    train: Callable[[TrainManager], object] = TrainManager.train,
    at: int | Iterable[int] | None = None,
    lose: int = 0,
) -> ResumeReport:
    """Kill a training, resume it, and compare its end with the end of an uninterrupted run.

    >>> from train_manager.testing import tiny_manager
    >>> print(verify_resume(lambda: tiny_manager(epochs=2), at=4))
    identical: killed after step 4 and resumed, the training comes to the same, to the bit

    Each run is a process of its own, forked from this one, with one thread; the kill is a real ``kill -9``. Compared
    are weights, optimizers, the states of extensions, counts, history and random states: everything that
    ``TrainManager.state_dict`` returns. In a test: ``report = verify_resume(make, at=4); assert report.identical,
    str(report)``. ``train-manager verify-resume`` does the same to a script.

    Args:
        make: makes a fresh TrainManager, seeded as in earnest. It needs no ``train_dir`` and no ``Checkpoints``: it
            gets a temporary folder, and ``Checkpoints()`` if it has none.
        train: trains with the TrainManager.
        at: a step after which a checkpoint is written and the process killed; of several, one kill after the other;
            None for one in the middle of an epoch.
        lose: how many steps are done between the checkpoint and the kill; the resumed training does them again.

    Raises:
        InputError: the training fails, has no such step, or this process uses a GPU already.
    """
    folder = Path(tempfile.mkdtemp(prefix="verify-resume-"))
    try:
        return _verified(Runs(runs_of_function(make, train), "the training", folder), at, lose)
    finally:
        shutil.rmtree(folder)


def verify_script(
    script: Path,
    arguments: Sequence[str] = (),
    *,
    at: int | Iterable[int] | None = None,
    lose: int = 0,
    folder: Path | None = None,
    say: Callable[[str], None] = print,
) -> ResumeReport:
    """Do the same to a script, as ``python script.py arguments...`` would run it.

    Args:
        script: the file.
        arguments: the arguments of the script.
        at: as in ``verify_resume``.
        lose: as in ``verify_resume``.
        folder: for the files of all runs; a temporary one by default.
        say: gets a line as each run begins, and as it has ended.

    Raises:
        InputError: the script is not there, fails, makes no TrainManager, or has no such step.
    """
    if not script.is_file():
        raise InputError(f"there is no script {script}", name=str(script), cure="give the path of a Python file")
    if folder is not None and folder.exists() and any(folder.iterdir()):
        raise InputError(f"{folder} is not empty", name="folder", cure="give a folder that is empty or not there")
    where = (folder or Path(tempfile.mkdtemp(prefix="verify-resume-"))).resolve()
    runs = Runs(runs_of_script(script, arguments), script.name, where, say)
    report = replace(_verified(runs, at, lose), notes=tuple(_notes(runs)))
    # Of identical runs only the logs may be of interest; of different ones the user may look into every file.
    if folder is None and report.identical:
        for path in where.iterdir():
            if path.is_dir():
                shutil.rmtree(path)
    return report


def _verified(runs: Runs, at: int | Iterable[int] | None, lose: int) -> ResumeReport:
    lose = require_count(lose, "lose", at_least=0)
    given = None if at is None else _checked_steps(at)
    # The uninterrupted run comes first: it shows how many steps there are.
    runs.to_its_end("straight")
    steps = given or (_step_within_an_epoch(runs.facts("straight")),)
    _require_steps(runs.name, runs.facts("straight"), steps)
    # Each killed run resumes from the checkpoint of the kill before.
    for before, step in zip((None, *steps), steps, strict=False):
        runs.and_kill(step, lose, before)
    runs.to_its_end("resumed", resume_at=steps[-1])
    begins = [*(f"killed-at-{step}" for step in steps), "resumed"]
    found = tuple(differences_of(runs.folder, "straight", "resumed", begins))
    if not found:
        return ResumeReport(True, steps)
    # A second uninterrupted run, for the causes: does the training itself differ from run to run?
    runs.to_its_end("straight-again", look_at=steps)
    return ResumeReport(False, steps, found, tuple(causes_of(runs.folder, steps)) or (no_cause(found),))


def _notes(runs: Runs) -> Iterator[str]:
    """Yield what a script lacks that the runs were given in its place."""
    if not runs.facts("straight")["resumes"]:
        what = f"{runs.name} ran without Checkpoints(resume=True), which was added to resume"
        yield f"{what}; without it, it begins anew or is refused when it is started again"


def _checked_steps(at: int | Iterable[int]) -> tuple[int, ...]:
    given = (at,) if isinstance(at, int) else tuple(at)
    return tuple(sorted({require_count(step, "at", at_least=1) for step in given}))


def _step_within_an_epoch(facts: Mapping[str, Any]) -> int:
    """Return the middle of the epoch in the middle of the longest training."""
    total = max(facts["steps"], default=0)
    ends = facts["epochs"][facts["steps"].index(total)] if total else []
    # Epochs of at least two steps, as the steps at which they begin and end.
    bounds = [(first, last) for first, last in zip([0, *ends], ends, strict=False) if last - first > 1]
    first, last = bounds[len(bounds) // 2] if bounds else (0, total)
    return max(1, (first + last) // 2)


def _require_steps(name: str, facts: Mapping[str, Any], steps: Sequence[int]) -> None:
    if not facts["steps"]:
        cure = "is it the script that trains? its output is in the log"
        raise InputError(f"{name} made no TrainManager", cure=cure)
    total = max(facts["steps"])
    if total == 0:
        raise InputError(f"{name} trained on no batch", cure="is it the script that trains?")
    if steps[-1] > total:
        what = f"{name} ends after {plural(total, 'step')}, before step {steps[-1]}"
        raise InputError(what, name="at", cure=f"give a step from 1 to {total}")
