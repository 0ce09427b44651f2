"""A training is killed at some moment, and resumes: each row up to the last transaction counts once."""

from __future__ import annotations

import os
import signal
import sqlite3
from collections import Counter
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tests.support.fork_server import ForkServer
from tests.support.rotation import part_of
from train_manager import Extension, TrainManager, every, priority
from train_manager.extensions import Checkpoints, MetricStore
from train_manager.runs.store import parts
from train_manager.runs.store.reader import MetricReader
from train_manager.runs.store.schema import BATCHES
from train_manager.runs.store.writer import MetricWriter
from train_manager.testing import tiny_manager

STEPS = 12


class Twice(Extension):
    """Write a metric of its own in each step."""

    def post_train_step_batch(self, writer: MetricWriter, step_num: int) -> None:
        writer.scalar("twice", 2.0 * step_num)


class Dies(Extension):
    """Kill the process at a moment of a step."""

    def __init__(self, moment: str, step: int) -> None:
        self.moment, self.step = moment, step

    def _die(self, moment: str, step: int) -> None:
        if (moment, step) == (self.moment, self.step):
            os.kill(os.getpid(), signal.SIGKILL)

    def pre_train_step_batch(self, step_num: int) -> None:
        self._die("before the step", step_num + 1)

    def post_train_backward(self, step_num: int) -> None:
        self._die("within the step", step_num + 1)

    def post_train_step_batch(self, step_num: int) -> None:
        self._die("after the step", step_num)

    @priority(-600)
    def pre_save_checkpoint(self, step_num: int) -> None:
        self._die("before the rows of a checkpoint", step_num)
        if (self.moment, self.step) == ("in the transaction", step_num):
            parts.insert = lambda *_: os.kill(os.getpid(), signal.SIGKILL)

    @priority(-400)
    def post_save_checkpoint(self, step_num: int) -> None:
        self._die("after a checkpoint", step_num)


BEFORE = (4, 6, 6, 10)  # the second kill at step 6 comes before anything new was saved
MOMENTS = {
    "before the step": BEFORE,
    "within the step": BEFORE,
    "after the step": BEFORE,
    "before the rows of a checkpoint": BEFORE,
    "in the transaction": BEFORE,
    "after a checkpoint": (4, 6, 8, 10),
}


def manager(folder: Path, *extensions: Extension) -> TrainManager:
    used = MetricStore(), Checkpoints(every(2)), Twice(), *extensions
    return tiny_manager(*used, epochs=STEPS // 3, train_dir=folder)


def train(folder: Path, moment: str, step: int) -> None:
    tm = manager(folder, Dies(moment, step))
    next(one for one in tm.extensions.values() if isinstance(one, Checkpoints)).resume = True
    tm.train()


def counted(folder: Path) -> dict[tuple[str, str], Counter[int]]:
    """Return how often each step counts, by name and stage of the series."""
    found: dict[tuple[str, str], Counter[int]] = {}
    for row in MetricReader(folder).rows():
        found.setdefault(row.series[:2], Counter())[row.step] += 1
    return found


@pytest.mark.parametrize("moment", part_of([*MOMENTS], 3, first=1))
def test_after_four_kills_each_step_counts_once(fork_server: ForkServer, tmp_path: Path, moment: str) -> None:
    for step in MOMENTS[moment]:
        child = fork_server.start(train, tmp_path, moment, step)
        assert child.wait() == -signal.SIGKILL, child.errors
        covers_the_last_checkpoint(tmp_path)
    train(tmp_path, "", 0)

    once = Counter(dict.fromkeys(range(1, STEPS + 1), 1))
    found = counted(tmp_path)
    assert (found["loss", BATCHES], found["twice", ""]) == (once, once)
    assert latest(tmp_path) == once
    assert len(MetricReader(tmp_path).history()["epochs"]) == STEPS // 3


def covers_the_last_checkpoint(folder: Path) -> None:
    """A checkpoint waits for the rows of its step: none of them is lost."""
    saved = max((int(path.name.removeprefix("step-")) for path in folder.glob("checkpoints/step-*")), default=0)
    found: Any = counted(folder).get(("loss", BATCHES), Counter()) if (folder / "metrics.sqlite").exists() else {}

    assert {*range(1, saved + 1)} <= found.keys()


def latest(folder: Path) -> Counter[int]:
    """Return how often each step is the latest in the view."""
    with closing(sqlite3.connect(folder / "metrics.sqlite")) as connection:
        sql = "SELECT step FROM metrics WHERE latest AND series = 'batch/loss'"
        return Counter(step for (step,) in connection.execute(sql))
