"""What a comparison of runs has found, as plain data. ``compare_runs.py`` fills it, other files show it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import final

from train_manager.runs.code.differences import CodeDifference
from train_manager.telling.findings import Findings

Cells = tuple[str | None, ...]
"""A value of each run, as text; None where a run has none."""

Points = list[tuple[float, float]]

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
        metrics: the last figures, and the best ones.
        files: for each run but the first, how its code differs from that of the first.
        curves: for each figure the points of each run, over steps; of a long one the means of stretches.
        bands: for each of these figures, and each run, between which values a long curve was in each stretch.
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
