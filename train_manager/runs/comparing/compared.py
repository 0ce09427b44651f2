"""What a comparison of runs has found, as plain data. ``compare_runs.py`` fills it, other files show it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, final

from train_manager.runs.code.differences import CodeDifference
from train_manager.telling.findings import Findings

PARTIAL: Final = "the code is not in full"
NO_GIT: Final = "no git repository"
"""The words of a note about a run whose code was not recorded in full."""

UNNAMED: Final = ", which is not recorded"
"""The words with which a record says that a class or function has no ``@recorded``."""

Cells = tuple[str | None, ...]
"""A value of each run, as text; None where a run has none."""

Points = list[tuple[float, float]]
"""Steps, with the value at each."""

Band = list[tuple[float, float, float]]
"""Steps, with the lowest and the highest value near each."""


@final
@dataclass(frozen=True)
class ComparedRun:
    """A run that is compared.

    Attributes:
        label: what tells it from the others: ``lr-0.1``, or ``lr-0.1#3f2a``.
        train_dir: its folder.
        id: its run_id.
        began: when, as recorded.
        outcome: in words.
        progress: "10 epochs, 500 steps".
    """

    label: str
    train_dir: str
    id: str
    began: str = ""
    outcome: str = ""
    progress: str = ""


@dataclass(frozen=True)
class Compared:
    """What several runs were, side by side.

    Attributes:
        runs: the runs, in the order in which they were given.
        parameters: the recorded constructor parameters, by their dotted paths.
        code: commit, branch and changed files; and how many files are others than in the first run, if any are.
        environment: the command, Python, packages, devices, threads, flags and variables.
        data: the seed, and the fingerprints of the data.
        metrics: the last metrics, and the best ones.
        files: for each run but the first, how its code differs from that of the first.
        curves: for each metric the points of each run, over steps; of a long one the means of stretches.
        bands: for each of these metrics, and each run, between which values a long curve was in each stretch.
        notes: what could not be read or compared.
        findings: what checks have found in each run.
    """

    runs: tuple[ComparedRun, ...]
    parameters: Mapping[str, Cells]
    code: Mapping[str, Cells]
    environment: Mapping[str, Cells]
    data: Mapping[str, Cells]
    metrics: Mapping[str, Cells]
    files: tuple[CodeDifference | None, ...] = ()
    curves: Mapping[str, Sequence[Points]] = field(default_factory=dict)
    bands: Mapping[str, Sequence[Band]] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    findings: tuple[Findings, ...] = ()


def differing(rows: Mapping[str, Cells]) -> dict[str, Cells]:
    """Return the rows whose values are not all the same.

    >>> differing({"epochs": ("3", "3"), "lr": ("0.1", None)})
    {'lr': ('0.1', None)}
    """
    return {name: cells for name, cells in rows.items() if len(set(cells)) > 1}


def unknown_in(compared: Compared) -> dict[str, str]:
    """Return each parameter that no run has recorded, with a description of its value.

    >>> net = ("<a Net, which is not recorded>",) * 2
    >>> unknown_in(Compared((), {"model": net, "epochs": ("3", "3")}, {}, {}, {}, {}))
    {'model': 'a Net, which is not recorded'}
    """
    return {
        name: cells[0][1:-1]
        for name, cells in compared.parameters.items()
        if len(set(cells)) == 1 and cells[0] and cells[0][0] + cells[0][-1] == "<>"
    }


def unknown_line(compared: Compared) -> str:
    """Return a line that lists the parameters that no run has recorded; an empty text if there are none."""
    # Data is compared by its fingerprints, whose rows begin with the name of the parameter.
    unknown = {
        name: what
        for name, what in unknown_in(compared).items()
        if not any(row.startswith(f"{name}.") for row in compared.data)
    }
    listed = ", ".join(f"{name} ({what.partition(UNNAMED)[0]})" for name, what in unknown.items())
    cure = (
        "; put @recorded above a class or function of yours"
        if any(UNNAMED in what for what in unknown.values())
        else ""
    )
    return f"not recorded: {listed}{cure}" if listed else ""


def is_partial(compared: Compared, title: str) -> bool:
    """Return whether some code, or a parameter, was not recorded, so that equal rows do not prove equal runs."""
    if title == "code":
        return any(PARTIAL in note or NO_GIT in note for note in compared.notes)
    return title == "parameters" and bool(unknown_line(compared))
