"""Programs of all kinds, run as in earnest: each is reproduced bit for bit, or the right cause is named."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import nbformat
import pytest

from tests.support.refusals import refusal
from tests.support.reproducing import AUTHOR, CLEAN
from tests.test_notebooks import executed
from train_manager.runs.record.run_file import read_runs
from train_manager.tools import reproduce

pytestmark = [pytest.mark.slow, pytest.mark.whole]

TRAINS = """
import torch
from train_manager.extensions import CodeRecord, MetricStore, RunRecord
from train_manager.testing import tiny_manager

def train(number=0, rate=0.1, folder="runs/{}", **options):
    torch.manual_seed(number)
    extensions = RunRecord(**options), CodeRecord(), MetricStore()
    sgd = lambda parameters: torch.optim.SGD(parameters, lr=rate * (1 + number))
    tiny_manager(*extensions, optimizer=sgd, epochs=2, train_dir=folder.format(number)).train()
"""
POOL = """
import multiprocessing, sys
from functools import partial
from helper import train

if __name__ == "__main__":
    with multiprocessing.get_context(sys.argv[1]).Pool(4) as pool:
        pool.map(partial(train, folder=sys.argv[2]), range(4), chunksize=1)
"""
ARGPARSE = """
import argparse
from helper import train
parser = argparse.ArgumentParser()
parser.add_argument("--rate", type=float)
train(rate=parser.parse_args().rate)
"""
READS_VARIABLE = """
import os
from helper import train
train(rate=float(os.environ["LR"]){})
"""
BY_THE_CLOCK = 'import time\nfrom helper import train\ntrain(folder=f"runs/{time.time_ns()}")\n'
TWICE = """
import subprocess, sys
from helper import train
train(int(sys.argv[1]))
if sys.argv[1] == "0":
    subprocess.run([sys.executable, "train.py", "1"], check=True)
"""
PRETRAINS = """
from helper import train
for number in (0, 1):
    train(number)
print("it has ended")
"""
EPOCH_BY_EPOCH = """
from train_manager.extensions import CodeRecord, MetricStore, RunRecord
from train_manager.testing import tiny_manager
tm = tiny_manager(RunRecord(), CodeRecord(), MetricStore(), epochs=4, train_dir="runs/0")
while tm.epoch_num < 4:
    tm.train_epoch()
"""


class Program:
    """A repository with a program, run in a folder of it."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def make(self, code: str) -> Program:
        (self.root / "inner").mkdir(parents=True)
        (self.root / "inner" / "helper.py").write_text(TRAINS)
        (self.root / "inner" / "train.py").write_text(code)
        (self.root / ".gitignore").write_text("runs/\n__pycache__/\n.ipython/\njupyter/\n")
        self.git("init", "-q", "-b", "main")
        self.git("add", "-A")
        self.git(*AUTHOR, "commit", "-q", "-m", "First")
        return self

    def git(self, *arguments: str) -> None:
        subprocess.run(["git", *arguments], cwd=self.root, env={**os.environ, **CLEAN}, check=True)

    def run(self, *arguments: str, given: str = "", code: int = 0, **variables: str) -> Program:
        done = subprocess.run(
            [sys.executable, *arguments],
            cwd=self.root / "inner",
            env={**os.environ, **CLEAN, **variables},
            input=given,
            text=True,
            check=False,
        )
        assert done.returncode == code
        return self

    def runs(self, folder: str = "0") -> Path:
        return self.root / "inner" / "runs" / folder

    def reproduced(self, run: str = "0", **options: Any) -> str:
        """Return what is told of a run that was run again."""
        text = str(
            reproduce(f"{self.runs()}{run}" if run[0] == "#" else self.runs(run), say=lambda text: None, **options)
        )
        return text.splitlines()[0]


@pytest.fixture
def program(tmp_path: Path) -> Program:
    return Program(tmp_path / "project")


SAME = "identical: 6 losses and "


@pytest.mark.parametrize("way", ["fork", "spawn"])
def test_each_run_of_a_pool_of_four_is_reproduced(program: Program, way: str) -> None:
    program.make(POOL).run("train.py", way, "runs/{}")

    assert [program.reproduced(str(number))[: len(SAME)] for number in (0, 3)] == [SAME, SAME]


def test_runs_of_two_processes_of_a_program_are_reproduced(program: Program) -> None:
    program.make(TWICE).run("train.py", "0")

    assert [program.reproduced(folder)[: len(SAME)] for folder in ("0", "1")] == [SAME, SAME]


def test_a_folder_that_is_named_by_the_clock_is_reproduced(program: Program) -> None:
    program.make(BY_THE_CLOCK).run("train.py")
    [folder] = program.runs().parent.iterdir()

    assert program.reproduced(folder.name).startswith(SAME)
    assert program.reproduced(folder.name, steps=4).startswith("identical up to step 4: 4 losses and ")


def test_of_two_trainings_the_one_that_is_reproduced_is_stopped(program: Program, tmp_path: Path) -> None:
    program.make(PRETRAINS).run("train.py")

    for number in ("0", "1"):
        again = tmp_path / number
        assert program.reproduced(number, steps=4, folder=again).startswith("identical up to step 4: 4 losses and ")
        assert (again / "output.log").read_text().endswith("it has ended\n")
        steps = [entry["progress"]["steps"] for path in again.glob("train_dir*") for entry in read_runs(path)]
        assert sorted(steps) == [4, 6]


def test_a_program_that_trains_until_its_last_epoch_ends_after_the_steps(program: Program) -> None:
    program.make(EPOCH_BY_EPOCH).run("train.py")

    assert program.reproduced(steps=4).startswith("identical up to step 4: 4 losses and ")


def test_a_module_with_argparse_is_reproduced(program: Program) -> None:
    program.make(ARGPARSE).run("-m", "train", "--rate", "0.25")

    assert program.reproduced().startswith(SAME)


def test_a_variable_that_was_not_recorded_is_that_of_this_process(
    program: Program, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    program.make(READS_VARIABLE.format("")).run("train.py", LR="0.25")
    assert refusal(lambda: program.reproduced(folder=tmp_path / "failed")).endswith(
        f"KeyError: 'LR'\n  all of it is in {tmp_path}/failed/output.log"
    )

    monkeypatch.setenv("LR", "0.5")
    report = reproduce(program.runs(), say=lambda text: None, folder=tmp_path / "again")
    assert report.metrics.first is not None
    assert report.metrics.first.series.name == "lr"


def test_a_notebook_that_imports_from_its_folder_and_awaits_is_reproduced(program: Program) -> None:
    program.make("")
    cells = ["from helper import train", "import asyncio\nawait asyncio.sleep(0)\nrate = 0.25", "train(rate=rate)"]
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in cells])  # type: ignore[no-untyped-call]
    executed(notebook, program.root / "inner")

    assert program.reproduced().startswith(SAME)
