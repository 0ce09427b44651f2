"""The metrics of a run, and of the runs that it resumed from, as they count in the end."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from train_manager.runs.record.metric_reader import MetricReader
from train_manager.runs.record.metric_schema import BATCHES, RANKS, Series
from train_manager.runs.repeating.metrics import MetricValues

Entry = Mapping[str, Any]
Rows = tuple[list[int], list[float]]
STEPWISE: Final = ("lr", "batch_size", RANKS)  # the store has only the changes of these series


def metrics_of_runs(train_dir: Path, chain: Sequence[Entry]) -> MetricValues:
    """Return the metrics of a chain of runs, each up to the step from which the next one continued."""
    reader = MetricReader(train_dir)
    found: dict[Series, Rows] = {}
    for number, entry in enumerate(chain):
        until = [(one.get("goes_on_from") or {}).get("step") for one in chain[number + 1 :]]
        # A later run may have resumed from before the beginning of the next one: the smallest step counts.
        last = min((step for step in until if step is not None), default=None)
        for series, (steps, values, *_) in reader.scalars(run=entry["id"]).items():
            into = found.setdefault(series, ([], []))
            for step, value in zip(steps, values, strict=True):
                if last is None or step <= last:
                    into[0].append(step)
                    into[1].append(value)
    return {series: _changes(rows) if _is_stepwise(series) else rows for series, rows in found.items() if rows[0]}


def _is_stepwise(series: Series) -> bool:
    return series.stage == BATCHES and series.name.split("/")[0] in STEPWISE


def _changes(rows: Rows) -> Rows:
    # Each run of a chain begins with the value, whether it has changed or not.
    kept = [number for number, value in enumerate(rows[1]) if number == 0 or value != rows[1][number - 1]]
    return [rows[0][number] for number in kept], [rows[1][number] for number in kept]
