"""The figures of a run as stretches of steps, as its store has them."""

from __future__ import annotations

import math
import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, NamedTuple, final

from train_manager.runs.comparing.run_figures import is_setting, lineage_of
from train_manager.runs.record.metric_blobs import StoredArray
from train_manager.runs.record.metric_reader import MetricReader, opened_to_read
from train_manager.runs.record.metric_schema import BATCH_SIZE, BATCHES, FILE, Series, is_empty
from train_manager.runs.showing.shown_run import ShownRun

MOST: Final = 1500  # stretches of a curve


class Stretches(NamedTuple):
    """Of each stretch of steps its middle, and the mean, the lowest and the highest value."""

    steps: list[float]
    means: list[float]
    lows: list[float]
    highs: list[float]


Histogram = tuple[int, list[float], list[int]]
"""Step, edges and counts."""


@final
@dataclass
class Figures:
    """All that a page draws of a run.

    Attributes:
        series: the curves.
        arrays: what was stored as vectors and matrices.
        histograms: those of each series.
        texts: step and text.
        files: step, path, size and SHA-256.
        epochs: the rows of ``tm.history``.
        sizes: of batches, at the steps where these change.
        times_of: of each series steps, and when they were, in seconds since 1970.
        pauses: the last step before each run that went on, and when it began.
        last: the last step.
    """

    series: dict[Series, Stretches] = field(default_factory=dict)
    arrays: dict[Series, list[StoredArray]] = field(default_factory=dict)
    histograms: dict[Series, list[Histogram]] = field(default_factory=dict)
    texts: dict[Series, list[tuple[int, str]]] = field(default_factory=dict)
    files: dict[Series, list[tuple[int, str, int, str]]] = field(default_factory=dict)
    epochs: list[dict[str, Any]] = field(default_factory=list)
    sizes: Sequence[tuple[float, float]] = ()
    times_of: dict[Series, list[tuple[float, float]]] = field(default_factory=dict)
    pauses: Sequence[tuple[float, float]] = ()
    last: float = 0

    @property
    def times(self) -> Sequence[tuple[float, float]]:
        """Steps, and when they were: of the series that has most of them."""
        return max(self.times_of.values(), key=len, default=[])


def read_figures(run: ShownRun) -> Figures:
    """Return the figures of a run, and of those that it goes on from; nothing if it has none.

    Raises:
        InputError: the file of figures cannot be read.
    """
    found = Figures()
    if not (run.train_dir / FILE).is_file():
        return found
    if not _has_tables(run.train_dir / FILE):  # its training is about to make them
        return found
    reader = MetricReader(run.train_dir)
    begun = [one for one in reader.since(most=1).segments if one.from_step is not None]
    is_latest = run.found is None or not begun or begun[-1].run == run.found.id
    parts = [(None, -math.inf, math.inf)] if run.found is None or is_latest else [*lineage_of(run.found)]
    for part in parts:
        _add(found, reader, *part)
    found.pauses = [(one.from_step, one.began) for one in begun[1:] if one.from_step is not None]
    steps = [stretches.steps[-1] for stretches in found.series.values()]
    found.last = max([*steps, *(row["step"] for row in found.epochs)], default=0)
    return found


def _has_tables(path: Path) -> bool:
    try:
        with opened_to_read(path) as connection:
            return not is_empty(connection)
    except sqlite3.DatabaseError:
        return True  # the reader tells what is wrong with it


def _add(found: Figures, reader: MetricReader, run: str | None, first: float, last: float) -> None:
    """Add what a run has stored from a step to another; None is all that counts now."""
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
    for name in {series.name for series in reader.series() if series.stage == BATCHES and is_setting(series.name)}:
        for series, scalars in reader.scalars(name, BATCHES, run=run).items():
            pairs = zip(scalars.steps, scalars.values, strict=True)
            points = [(step, value) for step, value in pairs if first <= step <= last]
            if name == BATCH_SIZE:
                found.sizes = sorted([*found.sizes, *points])
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
