"""What the tests of sinks share: a sink that keeps what it is sent, and what counts in a store."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, ClassVar

import pytest
import torch

from train_manager import Extension
from train_manager.runs.store.delivery import Connection, Ending, Sent
from train_manager.runs.store.reader import MetricReader
from train_manager.runs.store.rows import StoredRow
from train_manager.runs.store.sinks import Sink, tagged_numbers
from train_manager.runs.store.writer import MetricWriter

Points = dict[str, list[tuple[int, float]]]


class Keeps(Sink):
    """Keeps what it is sent.

    Args:
        before: called with rows before they are kept.

    Attributes:
        rows: what was sent.
        sent: what the connections were made for.
        endings: what each was closed with.
    """

    tool: ClassVar[str] = "kept"
    package: ClassVar[str] = "json"

    def __init__(self, before: Callable[[Any], object] = id) -> None:
        self.before = before
        self.rows: list[StoredRow] = []
        self.sent: list[Sent] = []
        self.endings: list[Ending | None] = []

    def connect(self, sent: Sent) -> Connection:
        self.sent.append(sent)
        return Kept(self)


class Kept:
    """A connection of ``Keeps``."""

    def __init__(self, keeps: Keeps) -> None:
        self._keeps = keeps

    def send(self, rows: Sequence[StoredRow]) -> None:
        self._keeps.before(rows)
        self._keeps.rows += rows

    def close(self, ending: Ending | None) -> None:
        self._keeps.endings.append(ending)


def points_of(rows: Iterable[StoredRow]) -> Points:
    """Return the numbers of rows by tag, in the order of steps."""
    found: Points = {}
    for row in rows:
        for tag, value in tagged_numbers(row):
            found.setdefault(tag, []).append((row.step, value))
    return {tag: sorted(points) for tag, points in found.items()}


def counting(train_dir: Path, run: str | None = None) -> Points:
    """Return what counts in a store."""
    return points_of(MetricReader(train_dir).rows(run))


def needs_package() -> None:
    """Skip the tests of a file where the packages of the sinks need not be installed."""
    if "SINKS" not in os.environ:
        pytest.skip("needs TensorBoard, MLflow and W&B: make sinks", allow_module_level=True)


KILLED = """
import os, signal, sys, threading
from pathlib import Path
from train_manager import Extension, every, extensions
from train_manager.runs.store import delivery
from train_manager.testing import tiny_manager

delivery.PATIENCE = 60.0  # the machine may be busy
folder, sink, is_killed = Path(sys.argv[1]), getattr(extensions, sys.argv[2])(), len(sys.argv) > 3
has_sent = threading.Event()

class Told:
    # The connection of the sink, which says when the rows of step 23 were sent.
    def __init__(self, connection):
        self.connection = connection

    def send(self, rows):
        self.connection.send(rows)
        if any(row.step == 23 and row.series.stage == "train_step_batch" for row in rows):
            has_sent.set()

    def close(self, ending):
        self.connection.close(ending)

connect = sink.connect
sink.connect = lambda sent: Told(connect(sent))

class Kills(Extension):
    def post_train_step_batch(self, step_num):
        if is_killed and step_num == 24:
            assert has_sent.wait(60)
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
