"""Kill a training, resume it, and compare its end with the end of an uninterrupted run."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, final

import numpy as np
import torch
from torch import Tensor

from train_manager.files.json_values import display_keys
from train_manager.manager import TrainManager
from train_manager.reporting.values import plural
from train_manager.telling.errors import InputError
from train_manager.trials.resumed_runs import BEGIN, LOOK, ResumedRuns, script_as_function
from train_manager.validation import require_count

STRAIGHT, AGAIN, RESUMED = "straight", "straight-again", "resumed"
"""The names of runs."""

FIRST: Final = ("model", "optimizers", "extensions")  # saved components that are reported first
UNSEEDED: Final = "the training is not deterministic: two straight runs differ too. Does it lack a seed?"
OTHER_DATA: Final = (
    "the training data do not resume where they were: the next batch is another one. SeededDataLoader resumes"
)
TIMES: Final = ("seconds", "elapsed", "call")  # keys whose values differ between any two runs
SHOWN: Final = 60  # characters of a value in a text

Keys = tuple[Any, ...]
Names = tuple[str, str]  # the names of the two states in the texts


@final
@dataclass(frozen=True)
class ResumeReport:
    """The result of comparing a resumed training with an uninterrupted one; ``str()`` describes it.

    Attributes:
        identical: whether both end in the same state, to the bit.
        at: the steps after which the training was killed.
        differences: the first value that differs in each saved component, and how.
        causes: the causes that were found.
        notes: what the comparison does not show.
    """

    identical: bool
    at: tuple[int, ...]
    differences: tuple[str, ...] = ()
    causes: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    def __str__(self) -> str:
        return "\n".join([*self._result(), *(f"note: {one}" for one in self.notes)])

    def _result(self) -> Iterator[str]:
        if self.identical:
            steps = " and ".join(map(str, self.at))
            yield f"identical: killed after step {steps} and resumed, the training comes to the same, to the bit"
            return
        first, *others = self.differences
        yield from (f"different: {first}", *(f"  also {one}" for one in others))
        yield from (f"cause: {one}" for one in self.causes)


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
        return _verified(ResumedRuns(lambda: train(make()), "the training", folder), at, lose)
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
    """Do the same to a script, as ``python script.py arguments...`` would run it, in forks of this process.

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
    runs = ResumedRuns(script_as_function(script, arguments), script.name, where, say)
    report = replace(_verified(runs, at, lose), notes=tuple(_notes(runs)))
    # Of identical runs only the logs may be of interest; of different ones the user may look into every file.
    if folder is None and report.identical:
        for path in where.iterdir():
            if path.is_dir():
                shutil.rmtree(path)
    return report


def _verified(runs: ResumedRuns, at: int | Iterable[int] | None, lose: int) -> ResumeReport:
    lose = require_count(lose, "lose", at_least=0)
    given = None if at is None else _checked_steps(at)
    # The uninterrupted run comes first: it shows how many steps there are.
    runs.to_its_end(STRAIGHT)
    steps = given or (_step_within_an_epoch(runs.facts(STRAIGHT)),)
    _require_steps(runs.name, runs.facts(STRAIGHT), steps)
    # Each killed run resumes from the checkpoint of the kill before.
    for before, step in zip((None, *steps), steps, strict=False):
        runs.and_kill(step, lose, before)
    runs.to_its_end(RESUMED, resume_at=steps[-1])
    begins = [*(f"killed-at-{step}" for step in steps), RESUMED]
    found = tuple(_differences_of_runs(runs, STRAIGHT, RESUMED, begins))
    if not found:
        return ResumeReport(True, steps)
    # A second uninterrupted run, for the causes: does the training itself differ from run to run?
    runs.to_its_end(AGAIN, look_at=steps)
    return ResumeReport(False, steps, found, tuple(_causes(runs, steps)) or (_no_cause(found),))


def _notes(runs: ResumedRuns) -> Iterator[str]:
    """Yield what a script lacks that the runs were given in its place."""
    if not runs.facts(STRAIGHT)["resumes"]:
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


# ---- the ends of two runs, and the causes of their differences -------------------------------------------------------


def _differences_of_runs(runs: ResumedRuns, one: str, other: str, begins: Sequence[str]) -> Iterator[str]:
    """Yield the first difference in each saved component of each manager.

    Args:
        runs: the runs.
        one: the name of a run.
        other: the name of the run that is compared with it.
        begins: the names of the runs in which the managers of the other one began.
    """
    names = (f"{one} run", f"{other} run")
    counts = len(runs.facts(one)["steps"]), len(runs.facts(other)["steps"])
    if counts[0] != counts[1]:
        yield f"{counts[0]} TrainManagers in the {names[0]}, {counts[1]} in the {names[1]}"
    for number in range(1, min(counts) + 1):
        states = [runs.end(run, number) for run in (one, other)]
        # A random state without a seed differs in any two runs, so it says nothing about the resume.
        for name in _unseeded(runs, number, one, begins):
            for state in states:
                state["random"].pop(name, None)
        for text in _first_of_each_part(states[0], states[1], names):
            yield text if counts[0] == 1 else f"manager {number}: {text}"


def _unseeded(runs: ResumedRuns, number: int, one: str, others: Sequence[str]) -> list[str]:
    """Return the names of the random states that already differ at the beginning of a manager's first run."""
    notes = [runs.note(run, BEGIN.format(number)) for run in (one, *others)]
    # A manager may begin only after the kill, in the run that resumes.
    begun = [note["random"] for note in notes if note is not None]
    if len(begun) < 2:  # the manager was made, and trained nothing: nothing tells which states have a seed
        return list(runs.end(one, number)["random"])
    return [name for name in begun[0] if any(differences(begun[0][name], begun[1][name], ("first", "second")))]


def _causes(runs: ResumedRuns, steps: Sequence[int]) -> Iterator[str]:
    """Yield causes of the differences, found in the values that the resumed training has lost."""
    # A training that differs from run to run says nothing about its resume.
    if unseeded := next(_differences_of_runs(runs, STRAIGHT, AGAIN, [AGAIN]), None):
        yield f"{UNSEEDED} ({unseeded})"
        return
    # The values at each kill are compared with those of the run that resumed from it.
    afterwards = [f"killed-at-{step}" for step in steps[1:]] + [RESUMED]
    for step, after in zip(steps, afterwards, strict=True):
        yield from _lost(runs, step, f"killed-at-{step}", after)


def _no_cause(found: Sequence[str]) -> str:
    """Return the text for differences without a known cause."""
    parts = ", ".join(_path_of(text) for text in found)
    back = "the next batch and all attributes of the manager and its extensions came back"
    return f"none was found for {parts}: {back}; left are workers of the data, generators, globals and files of its own"


def _lost(runs: ResumedRuns, step: int, before: str, after: str) -> Iterator[str]:
    """Yield the values that differ between the kill of the training and its resume."""
    for number in range(1, len(runs.facts(STRAIGHT)["steps"]) + 1):
        killed, resumed, again = (runs.note(run, LOOK.format(number, step)) for run in (before, after, AGAIN))
        if killed is None or resumed is None or again is None:
            continue
        names = ("killed run", "resumed run")
        # Values that differ between two runs without a kill, such as clocks and names of files, are not lost.
        unsteady = {_path_of(text) for text in differences(killed, again, names)}
        lost = [text for text in differences(killed, resumed, names) if _path_of(text) not in unsteady]
        if batch := next((text for text in lost if text.startswith("batch")), None):
            yield f"after step {step}, {OTHER_DATA} ({batch})"
        yield from (f"after step {step}, {cause}" for cause in _causes_of(lost))


def _first_of_each_part(one: dict[str, Any], other: dict[str, Any], names: tuple[str, str]) -> Iterator[str]:
    for part in [*FIRST, *sorted({*one, *other} - {*FIRST})]:
        of_part = ({part: state[part]} if part in state else {} for state in (one, other))
        if (text := next(differences(next(of_part), next(of_part), names), None)) is not None:
            yield text


def _causes_of(lost: Sequence[str]) -> Iterator[str]:
    for text in lost:
        owner, _, what = text.partition(" > ")
        if owner == "extensions":
            name, _, attribute = what.partition(" > ")
            yield f"the state_dict of extension {name!r} did not bring back {attribute}"
        elif owner == "manager":
            yield f"no state_dict brought back the manager's {what}"


def _path_of(text: str) -> str:
    return text.partition(":")[0]


# ---- two values ------------------------------------------------------------------------------------------------------


def differences(one: Any, other: Any, names: Names, keys: Keys = ()) -> Iterator[str]:
    """Yield each value that differs, to the bit, by its keys.

    >>> straight, resumed = {"total": 3.5, "mean": torch.tensor([1.0, 2.0])}, {"total": 3.5, "mean": torch.ones(2)}
    >>> list(differences(straight, resumed, ("straight", "resumed")))
    ['mean: 1 of 2 values differ, by 1 at most']

    Args:
        one: a value.
        other: the value that is compared with it.
        names: the names of the two in the texts.
        keys: the keys and positions that lead to them.
    """
    if type(one) is not type(other):
        yield _of_two(one, other, keys, names)
    elif isinstance(one, Mapping):
        for key in [key for key in {**one, **other} if key not in TIMES]:
            if key in one and key in other:
                yield from differences(one[key], other[key], names, (*keys, key))
            else:
                yield f"{display_keys((*keys, key))}: missing in the {names[0] if key not in one else names[1]}"
    elif isinstance(one, list | tuple) and len(one) == len(other):
        for number, pair in enumerate(zip(one, other, strict=True)):
            yield from differences(*pair, names, (*keys, number))
    elif isinstance(one, Tensor | np.ndarray):
        yield from _of_arrays(one, other, keys, names)
    elif one != other and not (one != one and other != other):  # `x != x` holds for nan: two of them count as equal
        yield _of_two(one, other, keys, names)


def _of_two(one: Any, other: Any, keys: Keys, names: Names) -> str:
    return f"{display_keys(keys)}: {_describe(one)} in the {names[0]}, {_describe(other)} in the {names[1]}"


def _of_arrays(one: Any, other: Any, keys: Keys, names: Names) -> Iterator[str]:
    if (one.shape, one.dtype) != (other.shape, other.dtype):
        yield _of_two(one, other, keys, names)
        return
    # Compared as bytes: == takes 0.0 and -0.0 for equal, and nan for different.
    differ = (_bits(one) != _bits(other)).any(axis=1)
    if differ.any():
        text = f"{display_keys(keys)}: {differ.sum()} of {differ.size} values differ"
        yield text + _largest(one, other)


def _bits(values: Any) -> np.ndarray[Any, Any]:
    """Return the bytes of each number in a row of its own."""
    if isinstance(values, Tensor):
        flat = values.detach().cpu().resolve_conj().resolve_neg().contiguous().reshape(-1)
        return flat.view(torch.uint8).numpy().reshape(flat.numel(), -1) if flat.numel() else np.zeros((0, 1))
    return np.frombuffer(values.tobytes(), np.uint8).reshape(values.size, -1) if values.size else np.zeros((0, 1))


def _largest(one: Any, other: Any) -> str:
    if isinstance(one, np.ndarray):
        if one.dtype.kind not in "iuf":
            return ""
        one, other = torch.from_numpy(one.astype(float)), torch.from_numpy(other.astype(float))
    if one.is_complex():
        return ""
    distance = (one.detach().cpu().double() - other.detach().cpu().double()).abs()
    # The distance from nan or infinity is not a number, so it has no largest.
    known = distance[~distance.isnan()]
    return f", by {known.max().item():.3g} at most" if known.numel() else ", all of them nan in one of the two"


def _describe(value: Any) -> str:
    if isinstance(value, Tensor | np.ndarray):
        return f"{'x'.join(map(str, value.shape)) or 'a scalar'} of {str(value.dtype).removeprefix('torch.')}"
    if isinstance(value, list | tuple | Mapping):
        return f"a {type(value).__name__} of {len(value)}"
    text = repr(value)
    return text if len(text) <= SHOWN else f"{text[:SHOWN]}..."
