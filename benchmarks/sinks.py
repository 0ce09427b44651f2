"""What a metric costs that is written for TensorBoard while a run trains.

    python -m benchmarks sinks

It is left out where tensorboard is not installed.
"""

from __future__ import annotations

import importlib.util
from pathlib import Path
from tempfile import TemporaryDirectory
from time import process_time
from typing import Any, Final

from benchmarks.measure import spread
from benchmarks.section import Claim, Section
from train_manager.extensions import TensorBoard
from train_manager.runs.store.delivery import Sent
from train_manager.runs.store.rows import StoredRow
from train_manager.runs.store.schema import BATCHES, RunPart, Series

QUICK: dict[str, Any] = {"rounds": 1, "rows": 2000}
AT_ONCE: Final = 500  # rows that the store hands on after a transaction, of a training with 1,000 steps in a second

TEXT: Final = """\
CPU time of the threads that write {rows:,} losses of batches for TensorBoard: {each} us for each. It is taken from the
training, which shares the interpreter with them.
"""


def section(rounds: int = 5, rows: int = 20_000) -> Section:
    """Measure."""
    if importlib.util.find_spec("tensorboard") is None:
        return Section("Sinks", "Left out: tensorboard is not installed (`make sinks`).", on_page=False)
    seconds_of(AT_ONCE)  # imports tensorboard
    each = spread([1e6 * seconds_of(rows) / rows for _ in range(rounds)])
    claim = Claim("CPU time of a metric that is written for TensorBoard", each.median, must=100, goal=50, unit="us")
    return Section("Sinks", TEXT.format(rows=rows, each=each.shown(1)), [claim], on_page=False)


def seconds_of(count: int) -> float:
    """Return the CPU seconds of this process in which so many rows are written."""
    series = Series("loss", BATCHES, "train")
    rows = [StoredRow(series, step, 1, 1.7e9 + step / 1000, 1 / step) for step in range(1, count + 1)]
    with TemporaryDirectory() as folder:
        part = RunPart(1, "0123456789abcdef", 1.7e9, None, None)
        connection = TensorBoard().connect(Sent(Path(folder), part, "begin", {}))
        began = process_time()
        for first in range(0, count, AT_ONCE):
            connection.send(rows[first : first + AT_ONCE])
        connection.close(None)
        return process_time() - began
