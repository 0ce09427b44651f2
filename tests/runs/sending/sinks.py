"""What the tests of sinks share: a sink that keeps what it is sent, and what counts in a store."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import pytest
import torch

from train_manager import Extension
from train_manager.runs.record.metric_news import NewRow, NewSegment
from train_manager.runs.record.metric_reader import MetricReader
from train_manager.runs.sending.following import FollowsStore
from train_manager.runs.sending.sink import Sink, scalars_of
from train_manager.runs.store.writer import MetricWriter

Points = dict[str, list[tuple[int, float]]]


class Kept:
    """A sink that keeps rows.

    Args:
        rows: where they go.
        needs_all: whether a segment that supersedes rows needs all of them again.
        before: called with the rows before they are taken.
    """

    def __init__(self, rows: list[NewRow], needs_all: bool = False, before: Callable[[Any], object] = id) -> None:
        self.rows, self.begun, self.cuts = rows, list[NewSegment](), list[int]()
        self._needs_all, self._before = needs_all, before

    def cut(self, step: int) -> bool:
        self.cuts.append(step)
        if self._needs_all:
            self.rows.clear()
        return self._needs_all

    def begin(self, segment: NewSegment) -> None:
        self.begun.append(segment)

    def send(self, rows: Sequence[NewRow]) -> None:
        self._before(rows)
        self.rows += rows

    def flush(self) -> Mapping[str, Any]:
        return {"rows": len(self.rows), "begun": [segment.id for segment in self.begun], "cuts": self.cuts}

    def close(self) -> None: ...


class Keeps(FollowsStore):
    """An extension whose sink keeps what it is sent.

    Args:
        before: called with rows before they are taken.
    """

    sink: ClassVar[str] = "kept"
    package: ClassVar[str] = "json"

    def __init__(self, before: Callable[[Any], object] = id) -> None:
        self.rows: list[NewRow] = []
        self.before = before

    def make_sink(self, train_dir: Path, state: Mapping[str, Any]) -> Sink:
        del self.rows[state.get("rows", 0) :]  # what was not noted
        return Kept(self.rows, before=self.before)


def points_of(rows: Sequence[NewRow]) -> Points:
    """Return the numbers of rows by tag, in the order of steps."""
    found: Points = {}
    for row in rows:
        for tag, value in scalars_of(row):
            found.setdefault(tag, []).append((row.step, value))
    return {tag: sorted(points) for tag, points in found.items()}


def counting(train_dir: Path, run: str | None = None) -> Points:
    """Return what counts in a store."""
    rows = MetricReader(train_dir).since().rows.values()
    return points_of([row for of_table in rows for row in of_table if run in (None, row.run)])


def needs_package() -> None:
    """Skip the tests of a file where the packages of the sinks need not be installed."""
    if "SINKS" not in os.environ:
        pytest.skip("needs TensorBoard, MLflow and W&B: make sinks", allow_module_level=True)


KILLED = """
import os, signal, sys, time
from pathlib import Path
from train_manager import Extension, every, extensions
from train_manager.runs.record.metric_reader import MetricReader
from train_manager.runs.sending import follower
from train_manager.runs.sending.sink_state import read_state
from train_manager.testing import tiny_manager

follower.PATIENCE = 60.0  # the machine may be busy
folder, sink, is_killed = Path(sys.argv[1]), getattr(extensions, sys.argv[2])(), len(sys.argv) > 3

def has_been_sent(step):
    if not (folder / "sinks.json").exists() or MetricReader(folder).last_step() < step:
        return False
    return not any(MetricReader(folder).since(read_state(folder, sink.sink).ids).rows.values())

class Kills(Extension):
    def post_train_step_batch(self, step_num):
        if is_killed and step_num == 24:
            while not has_been_sent(23):
                time.sleep(0.2)
            os.kill(os.getpid(), signal.SIGKILL)

checkpoints = extensions.Checkpoints(every(5), resume=True)
tiny_manager(extensions.MetricStore(), sink, checkpoints, Kills(), epochs=10, train_dir=folder).train()
"""


def kill_and_resume(folder: Path, sink: str) -> None:
    """Train with a sink, which is killed in step 24 as all of step 23 was sent, and resumes from step 20."""
    killed = run_program(KILLED, folder, sink, "killed")
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    resumed = run_program(KILLED, folder, sink)
    assert resumed.returncode == 0, resumed.stderr


def run_program(program: str, *arguments: object) -> subprocess.CompletedProcess[str]:
    """Run a program that ends within 90 seconds."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", program, *map(str, arguments)]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=90, check=False)


class OwnMetrics(Extension):
    """Writes a metric of each kind at the end of each epoch, and one at a step of its own."""

    def post_train_step_epoch(self, writer: MetricWriter, epoch_num: int) -> None:
        writer.scalar("largest", epoch_num, step=1000 * epoch_num)
        writer.histogram("weights", [0.0, 0.5, 1.0], bins=2)
        writer.array("norms", [1.0, 2.0], ("0 Linear", "1 Linear"))
        writer.array("confusion", [[1.0, 2.0], [3.0, 4.0]])
        writer.text("note", "größer")
        writer.image("picture", torch.rand(3, 4, 6))
