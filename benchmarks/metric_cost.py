"""What a stored metric costs, beside a list, lines of JSON and plain batched inserts; and what a training step costs.

python -m benchmarks metric_cost
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from tempfile import TemporaryDirectory
from time import process_time, time
from typing import Any, Final

import torch
from torch.nn import functional as F

from benchmarks.measure import differences, interleaved, spread
from benchmarks.mlp import Clocked, new_batches, new_model, sgd
from benchmarks.section import Claim, Section, table
from train_manager import Extension, TrainManager
from train_manager.extensions import MetricStore
from train_manager.runs.store.thread import StoreThread

WARMUP: Final = 10
STORE: Final = "`MetricStore`'s writer, flush and close included"
QUICK: dict[str, Any] = {"rounds": 1, "scalars": 10_000, "steps": 50}

TEXT: Final = """\
CPU time of all threads for a scalar with step and time, {scalars:,} of them:

{table}

Numbers of `MetricStore` can be read half a second later, and survive a kill. Lines of JSON are not flushed, and plain
inserts are one transaction.

A step of an MLP on a batch of 32 takes {step} us longer with `MetricStore` than without extensions, with the thread
that writes, without the end of the run.
"""


def section(rounds: int = 5, scalars: int = 200_000, steps: int = 1500) -> Section:
    """Measure."""
    torch.set_num_threads(1)
    with TemporaryDirectory() as name:
        folder = Path(name)
        cases = {case: _turn(write, folder / "file", scalars) for case, write in WRITES.items()}
        measured = interleaved(cases, rounds)
        batches = new_batches(steps + 2 * WARMUP)
        trainings = interleaved(
            {"plain": lambda: _trained(batches, folder), "stored": lambda: _trained(batches, folder, MetricStore())},
            rounds,
        )
    rows = [[case, spread(measured[case]).times(1e6).shown(2)] for case in WRITES]
    step = differences(trainings["stored"], trainings["plain"]).times(1e6)
    text = TEXT.format(scalars=scalars, table=table(["", "us of CPU per scalar"], rows), step=step.shown(1))
    each = spread(measured[STORE]).times(1e6).median
    return Section(
        "Stored numbers", text, [Claim("CPU time of a stored scalar", each, must=3, goal=1, unit="us")], on_page=False
    )


def _turn(write: Callable[[Path, int], None], path: Path, count: int) -> Callable[[], float]:
    """Return what measures the CPU seconds for one scalar."""

    def turn() -> float:
        before = process_time()
        write(path, count)
        seconds = process_time() - before
        path.unlink(missing_ok=True)
        return seconds / count

    return turn


def _to_list(path: Path, count: int) -> None:
    found = []
    for step in range(count):
        found.append((0, step, 1, time(), 0.5))


def _to_lines(path: Path, count: int) -> None:
    with path.open("w") as file:
        for step in range(count):
            file.write(json.dumps({"step": step, "epoch": 1, "time": time(), "loss": 0.5}) + "\n")


def _to_inserts(path: Path, count: int) -> None:
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE scalars(series, step, epoch, time, value)")
        found = [(0, step, 1, time(), 0.5) for step in range(count)]
        connection.executemany("INSERT INTO scalars VALUES (?, ?, ?, ?, ?)", found)
        connection.commit()


def _to_store(path: Path, count: int) -> None:
    thread = StoreThread(path, "run")
    for step in range(count):
        thread.append((0.5, step, 16, time(), "train", None))
    thread.close()


WRITES: Final = {
    "append to a list": _to_list,
    "lines of JSON": _to_lines,
    "plain batched inserts": _to_inserts,
    STORE: _to_store,
}


def _trained(batches: list[Any], folder: Path, *extensions: Extension) -> float:
    """CPU seconds of a step."""
    with TemporaryDirectory(dir=folder) as train_dir:
        tm = TrainManager(
            model=new_model(),
            loss=F.cross_entropy,
            optimizer=sgd,
            train_data=Clocked(batches, WARMUP),
            extensions=list(extensions),
            train_dir=train_dir,
        )
        with tm.run():
            tm.train_epoch()  # the file is opened and the thread has begun
            before = process_time()
            tm.train_epoch()
            return (process_time() - before) / len(batches)
