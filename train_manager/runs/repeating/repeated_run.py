"""Which run of a program that was run again is the recorded one: it may train several times, and in processes."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from train_manager.runs.record.run_file import read_runs
from train_manager.runs.record.run_paths import has_trained
from train_manager.runs.repeating.metrics import MetricComparison, MetricValues, metrics_of_run
from train_manager.runs.store.schema import FILE


class RepeatedRun(NamedTuple):
    """A run, its folder, and the comparison of its metrics with the record."""

    train_dir: Path
    entry: Mapping[str, Any]
    metrics: MetricComparison


def repeated_run(
    train_dir: Path, number: int | None, compare: Callable[[MetricValues], MetricComparison]
) -> RepeatedRun | None:
    """Return the run that is of the same TrainManager as the recorded one; None if none has trained.

    Args:
        train_dir: the folder that has taken the place of the recorded one. It is absent if the program gives its folder
            a new name each time, such as the next number; then all folders of the program, which lie beside it, count.
        number: of the TrainManager in its process. Several processes of a pool may each have one, and count their tasks
            in another order: of several runs, or of all if none has the number, the closest is taken.
        compare: compares metrics with those of the record.
    """
    folders = [train_dir] if train_dir.exists() else sorted(train_dir.parent.glob(f"{train_dir.name}-*"))
    trained = [
        (folder, entry)
        for folder in folders
        if (folder / FILE).exists()
        for entry in reversed(read_runs(folder))
        if has_trained(entry)
    ]
    of_number = [(folder, entry) for folder, entry in trained if entry.get("manager") == number]
    found = [
        RepeatedRun(folder, entry, compare(metrics_of_run(folder, entry["id"])))
        for folder, entry in of_number or trained
    ]
    return max(found, key=lambda one: _likeness(one.metrics), default=None)


def _likeness(found: MetricComparison) -> tuple[Any, ...]:
    # Compared from left to right: identical, fewest missing series, latest difference, nearest lengths.
    first = math.inf if found.first is None else found.first.step
    return found.identical, -len(found.only_in[0]), first, -abs(found.ends[0] - found.ends[1])
