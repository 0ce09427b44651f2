"""The figures of a run, and of the runs that it went on from, as they count in the end."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, Final

from train_manager.runs.record.metric_reader import MetricReader
from train_manager.runs.record.metric_schema import BATCHES, FILE, Series, database_uri
from train_manager.runs.repeating.comparing_figures import Figures

Entry = Mapping[str, Any]
Rows = tuple[list[int], list[float]]
_LAST_STEP: Final = (
    "SELECT step FROM scalars JOIN series ON series.id = scalars.series WHERE stage = ? "
    "ORDER BY scalars.id DESC LIMIT 1"  # by the key, so that not all rows are read
)
STEPWISE: Final = ("lr", "batch_size")  # of which the store has only changes


def figures_of(train_dir: Path, chain: Sequence[Entry]) -> Figures:
    """Return the figures of a chain of runs, each up to the step from which the next one went on."""
    reader = MetricReader(train_dir)
    found: dict[Series, Rows] = {}
    for number, entry in enumerate(chain):
        until = [(one.get("goes_on_from") or {}).get("step") for one in chain[number + 1 :]]
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
    """Return rows without those that repeat a value: each part of a run begins with its value, changed or not."""
    kept = [number for number, value in enumerate(rows[1]) if number == 0 or value != rows[1][number - 1]]
    return [rows[0][number] for number in kept], [rows[1][number] for number in kept]


def has_trained(entry: Entry, train_dir: Path) -> bool:
    """Return whether a run has trained on a batch; of a run whose process was killed, the metrics know it."""
    steps = (entry.get("progress") or {}).get("steps") or 0
    if steps > ((entry.get("goes_on_from") or {}).get("step") or 0):
        return True
    return (train_dir / FILE).exists() and bool(MetricReader(train_dir).scalars(stage=BATCHES, run=entry["id"]))


def last_step(train_dir: Path) -> int:
    """Return the last step in the metrics of a training that may be under way; 0 if there is none yet."""
    path = train_dir / FILE
    if not path.exists():
        return 0
    try:
        with closing(sqlite3.connect(database_uri(path, "ro"), uri=True, timeout=1)) as connection:
            found = connection.execute(_LAST_STEP, (BATCHES,)).fetchone()
    except sqlite3.OperationalError:  # the tables are about to be made
        return 0
    return found[0] if found else 0
