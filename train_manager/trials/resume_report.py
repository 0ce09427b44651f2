"""The comparison of the runs of a training: whether they end in the same state, and causes of differences."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, final

from train_manager.checkpoints.checkpoint import read_checkpoint
from train_manager.trials.comparing import differences
from train_manager.trials.driven import FACTS, begin_name, look_name

FIRST: Final = ("model", "optimizers", "extensions")  # saved components that are reported first
BEGINS: Final = ("first", "second")  # the names of two states in texts that are not shown
UNSEEDED: Final = "the training is not deterministic: two straight runs differ too. Does it lack a seed?"
OTHER_DATA: Final = (
    "the training data do not resume where they were: the next batch is another one. SeededDataLoader resumes"
)


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


def differences_of(folder: Path, one: str, other: str, begins: Sequence[str]) -> Iterator[str]:
    """Yield the first difference in each saved component of each manager.

    Args:
        folder: the folder of the runs.
        one: the name of a run.
        other: the name of the run that is compared with it.
        begins: the names of the runs in which the managers of the other one began.
    """
    names = (f"{one} run", f"{other} run")
    counts = len(_facts(folder, one)["steps"]), len(_facts(folder, other)["steps"])
    if counts[0] != counts[1]:
        yield f"{counts[0]} TrainManagers in the {names[0]}, {counts[1]} in the {names[1]}"
    for number in range(1, min(counts) + 1):
        states = [read_checkpoint(folder / run / f"final-{number}") for run in (one, other)]
        # A random state without a seed differs in any two runs, so it says nothing about the resume.
        for name in _unseeded(folder, number, one, begins):
            for state in states:
                state["random"].pop(name, None)
        for text in _first_of_each_part(states[0], states[1], names):
            yield text if counts[0] == 1 else f"manager {number}: {text}"


def _unseeded(folder: Path, number: int, one: str, others: Sequence[str]) -> list[str]:
    """Return the names of the random states that already differ at the beginning of a manager's first run."""
    paths = [folder / run / begin_name(number) for run in (one, *others)]
    # A manager may begin only after the kill, in the run that resumes.
    begun = [read_checkpoint(path)["random"] for path in paths if path.exists()]
    if len(begun) < 2:  # the manager was made, and trained nothing: nothing tells which states have a seed
        return list(read_checkpoint(folder / one / f"final-{number}")["random"])
    return [name for name in begun[0] if any(differences(begun[0][name], begun[1][name], BEGINS))]


def causes_of(folder: Path, steps: Sequence[int]) -> Iterator[str]:
    """Yield causes of the differences, found in the values that the resumed training has lost."""
    # A training that differs from run to run says nothing about its resume.
    if unseeded := next(differences_of(folder, "straight", "straight-again", ["straight-again"]), None):
        yield f"{UNSEEDED} ({unseeded})"
        return
    # The values at each kill are compared with those of the run that resumed from it.
    afterwards = [f"killed-at-{step}" for step in steps[1:]] + ["resumed"]
    for step, after in zip(steps, afterwards, strict=True):
        yield from _lost(folder, step, f"killed-at-{step}", after)


def no_cause(found: Sequence[str]) -> str:
    """Return the text for differences without a known cause."""
    parts = ", ".join(_path_of(text) for text in found)
    back = "the next batch and all attributes of the manager and its extensions came back"
    return f"none was found for {parts}: {back}; left are workers of the data, generators, globals and files of its own"


def _lost(folder: Path, step: int, before: str, after: str) -> Iterator[str]:
    """Yield the values that differ between the kill of the training and its resume."""
    for number in range(1, len(_facts(folder, "straight")["steps"]) + 1):
        name = look_name(number, step)
        found = [folder / run / name for run in (before, after, "straight-again")]
        if not all(path.exists() for path in found):
            continue
        killed, resumed, again = (read_checkpoint(path) for path in found)
        names = ("killed run", "resumed run")
        # Values that differ between two runs without a kill, such as clocks and names of files, are not lost.
        unsteady = {_path_of(text) for text in differences(killed, again, names)}
        lost = [text for text in differences(killed, resumed, names) if _path_of(text) not in unsteady]
        if batch := next((text for text in lost if text.startswith("batch")), None):
            yield f"after step {step}, {OTHER_DATA} ({batch})"
        yield from (f"after step {step}, {cause}" for cause in _causes_of(lost))


def _facts(folder: Path, run: str) -> dict[str, Any]:
    facts: dict[str, Any] = json.loads((folder / run / FACTS).read_text())
    return facts


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
