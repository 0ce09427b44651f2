"""What the curves of a page cost: seconds beside a plain read of the same rows, and memory.

python -m benchmarks curve_cost
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from tempfile import TemporaryDirectory
from time import process_time
from typing import Any, Final

import numpy as np

from benchmarks.measure import in_fresh_process, interleaved, ratios, spread
from benchmarks.section import Claim, Section, table
from train_manager.runs.store.curves import curves_of
from train_manager.runs.store.reader import MetricReader
from train_manager.runs.store.schema import FILE, make_tables

OURS: Final = "`curves_of`: 1,500 points of each"
PLAIN: Final = "`SELECT` and one numpy array"
QUICK: dict[str, Any] = {"rounds": 1, "steps": 1000, "long": 1000}

TEXT: Final = """\
CPU time of reading {rows:,} numbers, ten series of a run:

{table}

The curves of 20 series of {long:,} steps need {peak:.0f} MB of memory beside those of an empty store: the rows of one
series are there at a time.
"""

# The peak of a process that has read an empty store already, so that it has imported and opened all that it needs.
PEAK: Final = """
import sys
from pathlib import Path
from train_manager.runs.store.curves import curves_of
from train_manager.runs.store.reader import MetricReader

def peak():
    [line] = [line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM")]
    return int(line.split()[1]) / 1024

empty, long = {paths!r}
curves_of(MetricReader(empty))
before = peak()
found = curves_of(MetricReader(long))
print(peak() - before)
"""


def section(rounds: int = 5, steps: int = 50_000, long: int = 100_000) -> Section:
    """Measure."""
    with TemporaryDirectory() as name:
        folder = Path(name)
        for case, series, count in ("read", 10, steps), ("empty", 1, 1), ("long", 20, long):
            _store(folder / case, series, count)
        cases = {OURS: _seconds(_ours, folder / "read"), PLAIN: _seconds(_plain, folder / "read")}
        measured = interleaved(cases, rounds)
        peak = in_fresh_process(PEAK.format(paths=[str(folder / "empty"), str(folder / "long")]))
    rows = [[case, spread(seconds).shown(2)] for case, seconds in measured.items()]
    text = TEXT.format(rows=10 * steps, table=table(["", "s of CPU"], rows), long=long, peak=peak)
    ratio = ratios(measured[OURS], measured[PLAIN]).median
    claims = [
        Claim("CPU time of the curves of a page", spread(measured[OURS]).median, must=1.5, goal=0.8, unit="s"),
        Claim("the same beside a plain read", ratio, must=2.5, goal=2),
        Claim("memory of the curves of 2,000,000 numbers", peak, must=30, goal=20, unit="MB"),
    ]
    return Section("Curves of stored numbers", text, claims, on_page=False)


def _store(folder: Path, series: int, steps: int) -> None:
    """Write a store as a training would have left it."""
    folder.mkdir()
    with closing(sqlite3.connect(folder / FILE)) as connection:
        make_tables(connection)
        connection.execute("INSERT INTO runs VALUES (1, 'run', 0.0, NULL, NULL)")
        names = ((number, f"own{number}") for number in range(1, series + 1))
        connection.executemany("INSERT INTO series VALUES (?, ?, '', '', '', '')", names)
        values = np.random.default_rng(0).random(steps).tolist()
        rows = ((of, step, float(step), values[step]) for step in range(steps) for of in range(1, series + 1))
        connection.executemany("INSERT INTO scalars VALUES (1, ?, ?, NULL, 1, ?, ?)", rows)
        connection.commit()


def _seconds(read: Callable[[Path], object], folder: Path) -> Callable[[], float]:
    """Return what measures the CPU seconds of reading."""

    def turn() -> float:
        before = process_time()
        read(folder)
        return process_time() - before

    return turn


def _ours(folder: Path) -> object:
    return curves_of(MetricReader(folder))


def _plain(folder: Path) -> object:
    with closing(sqlite3.connect(folder / FILE)) as connection:
        return np.array(connection.execute("SELECT series, step, time, value FROM scalars").fetchall(), float)
