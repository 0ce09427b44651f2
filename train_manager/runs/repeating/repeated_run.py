"""Which run of a program that was run again is the recorded one: it may train several times, and in processes."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from train_manager.runs.record.metric_schema import FILE
from train_manager.runs.record.run_file import read_runs
from train_manager.runs.record.run_paths import chain_of
from train_manager.runs.repeating.comparing_figures import FigureComparison, Figures
from train_manager.runs.repeating.recorded_figures import figures_of, has_trained, last_step


class RepeatedRun(NamedTuple):
    """A run, where it is, and how its figures compare with those of the record."""

    train_dir: Path
    entry: Mapping[str, Any]
    figures: FigureComparison


def closest_run(train_dir: Path, compare: Callable[[Figures], FigureComparison]) -> RepeatedRun | None:
    """Return the run whose figures are identical, else the one that differs last; None if none has trained.

    Args:
        train_dir: takes the place of the recorded one. If the program names its folder otherwise each time, as by the
            hour, it is not there, and all that lie beside it are looked at.
        compare: compares figures with those of the record.
    """
    found = [
        RepeatedRun(folder, entry, compare(figures_of(folder, chain_of(entry, entries))))
        for folder in folders_of(train_dir)
        for entries in [read_runs(folder)]
        for entry in reversed(entries)
        if has_trained(entry, folder) and (folder / FILE).exists()
    ]
    return max(found, key=lambda one: _likeness(one.figures), default=None)


def folders_of(train_dir: Path) -> list[Path]:
    """Return the folder that takes the place of the recorded one, or all of the program if there is none."""
    return [train_dir] if train_dir.exists() else sorted(train_dir.parent.glob(f"{train_dir.name}-*"))


def steps_done(train_dir: Path) -> int:
    """Return the last step of a training that may be under way; 0 if there is none yet."""
    return max(map(last_step, folders_of(train_dir)), default=0)


def _likeness(found: FigureComparison) -> tuple[Any, ...]:
    first = math.inf if found.first is None else found.first.step
    return found.identical, -len(found.only_in[0]), first, -abs(found.ends[0] - found.ends[1])
