"""The metrics of a run, and of the runs that it resumed from, as they count in the end."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, Final

from train_manager.runs.record.metric_reader import MetricReader
from train_manager.runs.record.metric_schema import BATCHES, FILE, RANKS, Series, database_uri
from train_manager.runs.repeating.comparing_metrics import MetricValues

Entry = Mapping[str, Any]
Rows = tuple[list[int], list[float]]
_LAST_STEP: Final = (
    "SELECT step FROM scalars JOIN series ON series.id = scalars.series WHERE stage = ? "
    "ORDER BY scalars.id DESC LIMIT 1"  # from the end of the primary key, so that one row is read
)
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
    return {name: changes(rows) if is_stepwise(name) else rows for name, rows in found.items() if rows[0]}


def is_stepwise(name: Series) -> bool:
    """Return whether the store has only the changes of a series."""
    return name.stage == BATCHES and name.name.split("/")[0] in STEPWISE


def changes(rows: Rows) -> Rows:
    """Return the rows at which the value changes."""
    # Each segment of a run begins with the value, whether it has changed or not.
    kept = [number for number, value in enumerate(rows[1]) if number == 0 or value != rows[1][number - 1]]
    return [rows[0][number] for number in kept], [rows[1][number] for number in kept]


def has_trained(entry: Entry, train_dir: Path) -> bool:
    """Return whether a run has trained on a batch."""
    # The entry of a run that was killed early may have no progress; then its metrics decide.
    steps = (entry.get("progress") or {}).get("steps") or 0
    if steps > ((entry.get("goes_on_from") or {}).get("step") or 0):
        return True
    return (train_dir / FILE).exists() and bool(MetricReader(train_dir).scalars(stage=BATCHES, run=entry["id"]))


def last_step(train_dir: Path) -> int:
    """Return the last step in the metrics of a run that may be open; 0 if there is none yet."""
    path = train_dir / FILE
    if not path.exists():
        return 0
    try:
        with closing(sqlite3.connect(database_uri(path, "ro"), uri=True, timeout=1)) as connection:
            found = connection.execute(_LAST_STEP, (BATCHES,)).fetchone()
    except sqlite3.OperationalError:  # the program has made the file, and not its tables yet
        return 0
    return found[0] if found else 0
