"""Which run of a program that was run again is the recorded one: it may train several times, and in processes."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from train_manager.runs.record.metric_schema import FILE
from train_manager.runs.record.run_file import read_runs
from train_manager.runs.record.run_paths import chain_of
from train_manager.runs.repeating.comparing_metrics import MetricComparison, MetricValues
from train_manager.runs.repeating.recorded_metrics import has_trained, last_step, metrics_of_runs


class RepeatedRun(NamedTuple):
    """A run, its folder, and the comparison of its metrics with the record."""

    train_dir: Path
    entry: Mapping[str, Any]
    metrics: MetricComparison


def closest_run(train_dir: Path, compare: Callable[[MetricValues], MetricComparison]) -> RepeatedRun | None:
    """Return the run whose metrics are identical, else the one that differs last; None if none has trained.

    Args:
        train_dir: the folder that replaces the recorded one. It is absent if the program gives its folder a new name
            each time, such as the hour; then all folders of the program, which lie beside it, are looked at.
        compare: compares metrics with those of the record.
    """
    found = [
        RepeatedRun(folder, entry, compare(metrics_of_runs(folder, chain_of(entry, entries))))
        for folder in folders_of(train_dir)
        for entries in [read_runs(folder)]
        for entry in reversed(entries)
        if has_trained(entry, folder) and (folder / FILE).exists()
    ]
    return max(found, key=lambda one: _likeness(one.metrics), default=None)


def folders_of(train_dir: Path) -> list[Path]:
    """Return the folder that replaces the recorded one, or all folders of the program if there is none."""
    return [train_dir] if train_dir.exists() else sorted(train_dir.parent.glob(f"{train_dir.name}-*"))


def steps_done(train_dir: Path) -> int:
    """Return the last step of a run that may be open; 0 if there is none yet."""
    return max(map(last_step, folders_of(train_dir)), default=0)


def _likeness(found: MetricComparison) -> tuple[Any, ...]:
    # Compared from left to right: identical, fewest missing series, latest difference, nearest lengths.
    first = math.inf if found.first is None else found.first.step
    return found.identical, -len(found.only_in[0]), first, -abs(found.ends[0] - found.ends[1])
