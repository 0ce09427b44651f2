"""The metrics of a run as stretches of steps, as its store has them."""

from __future__ import annotations

import math
import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, NamedTuple, final

from train_manager.runs.comparing.run_metrics import is_setting, lineage_of
from train_manager.runs.record.metric_blobs import StoredArray
from train_manager.runs.record.metric_reader import MetricReader, open_to_read
from train_manager.runs.record.metric_schema import BATCH_SIZE, BATCHES, FILE, RANKS, Series, is_empty
from train_manager.runs.showing.shown_run import ShownRun

MOST: Final = 1500  # stretches of a curve


class Stretches(NamedTuple):
    """A curve in stretches of steps."""

    steps: list[float]  # the middle of each stretch
    means: list[float]
    lows: list[float]
    highs: list[float]


Histogram = tuple[int, list[float], list[int]]
"""Step, edges and counts."""


@final
@dataclass
class StoredMetrics:
    """All metrics of a run that a page draws."""

    series: dict[Series, Stretches] = field(default_factory=dict)
    arrays: dict[Series, list[StoredArray]] = field(default_factory=dict)  # vectors and matrices
    histograms: dict[Series, list[Histogram]] = field(default_factory=dict)
    texts: dict[Series, list[tuple[int, str]]] = field(default_factory=dict)  # step and text
    files: dict[Series, list[tuple[int, str, int, str]]] = field(default_factory=dict)  # step, path, size and SHA-256
    epochs: list[dict[str, Any]] = field(default_factory=list)  # the rows of epochs of tm.history
    sizes: Sequence[tuple[float, float]] = ()  # steps at which the batch size changes, and the size from there on
    has_ranks: bool = False  # several processes have trained together, so the losses of batches are of rank 0's rows
    times_of: dict[Series, list[tuple[float, float]]] = field(default_factory=dict)  # steps, and seconds since 1970
    pauses: Sequence[tuple[float, float]] = ()  # the last step before each run that resumed, and when that run began
    last: float = 0  # the last step

    @property
    def times(self) -> Sequence[tuple[float, float]]:
        """Steps and their seconds since 1970, of the series that has most steps."""
        return max(self.times_of.values(), key=len, default=[])


def read_metrics(run: ShownRun) -> StoredMetrics:
    """Return the metrics of a run, and of the runs that it resumes from; empty if it has none.

    Raises:
        InputError: the file of metrics cannot be read.
    """
    found = StoredMetrics()
    if not (run.train_dir / FILE).is_file():
        return found
    if not _has_tables(run.train_dir / FILE):  # the run has made the file, and not its tables yet
        return found
    reader = MetricReader(run.train_dir)
    begun = [one for one in reader.since(most=1).segments if one.from_step is not None]
    is_latest = run.found is None or not begun or begun[-1].run == run.found.id
    # The training that counts is read at once; of an earlier run, the runs that it resumes from are read one by one.
    parts = [(None, -math.inf, math.inf)] if run.found is None or is_latest else [*lineage_of(run.found)]
    for part in parts:
        _add(found, reader, *part)
    found.pauses = [(one.from_step, one.began) for one in begun[1:] if one.from_step is not None]
    steps = [stretches.steps[-1] for stretches in found.series.values()]
    found.last = max([*steps, *(row["step"] for row in found.epochs)], default=0)
    return found


def _has_tables(path: Path) -> bool:
    try:
        with open_to_read(path) as connection:
            return not is_empty(connection)
    except sqlite3.DatabaseError:
        return True  # the reader, which opens the file next, reports the fault


def _add(found: StoredMetrics, reader: MetricReader, run: str | None, first: float, last: float) -> None:
    """Add the metrics of a run from one step to another; None for the run adds all rows that count now."""
    for series, stretches in reader.stretches(MOST, run=run).items():
        kept = [one for one in stretches if first <= one.last <= last]
        if (is_setting(series.name) and series.stage == BATCHES) or not kept:
            continue
        into = found.series.setdefault(series, Stretches([], [], [], []))
        rows = [((one.first + one.last) / 2, one.mean, one.lowest, one.highest) for one in kept]
        for values, column in zip(into, zip(*rows, strict=True), strict=True):
            values += column
        times = found.times_of.setdefault(series, [])
        times += ((step, one.time) for (step, *_), one in zip(rows, kept, strict=True))
    # Learning rates and batch sizes are stored where they change: means of stretches would invent values.
    for name in {series.name for series in reader.series() if series.stage == BATCHES and is_setting(series.name)}:
        for series, scalars in reader.scalars(name, BATCHES, run=run).items():
            pairs = zip(scalars.steps, scalars.values, strict=True)
            points = [(step, value) for step, value in pairs if first <= step <= last]
            if name == BATCH_SIZE:
                found.sizes = sorted([*found.sizes, *points])
            elif name == RANKS:
                found.has_ranks |= bool(points)
            else:
                rates = found.series.setdefault(series, Stretches([], [], [], []))
                rates.steps.extend(step for step, _ in points)
                for values in (rates.means, rates.lows, rates.highs):
                    values.extend(value for _, value in points)
    for table in ("arrays", "histograms", "texts", "files"):
        of_run = getattr(reader, table)(run=run)
        of_table = getattr(found, table)
        for series, of_series in of_run.items():
            of_table.setdefault(series, []).extend(row for row in of_series if first <= row[0] <= last)
    found.epochs += [row for row in reader.history(run)["epochs"] if first <= row["step"] <= last]
