"""Trainings that torchrun starts again after one of their processes was killed.

python -m torch.distributed.run --standalone --nproc-per-node 2 --max-restarts 2 -m tests.support.restarting FOLDER
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Final

import torch
from torch import Tensor

from tests.support.rank_resuming import make
from tests.support.rank_trainings import whole
from train_manager import Extension, TrainManager, every
from train_manager.extensions import Checkpoints

STEPS: Final = 36
ROOT: Final = Path(__file__).parents[2]


class Steps(Extension):
    """Note each step of a process, and take some time for it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def pre_train_step_batch(self, train_manager: TrainManager, step_num: int) -> None:
        with open(self.folder / f"steps-{train_manager.ranks.place.rank}", "a", encoding="utf-8") as file:
            file.write(f"{os.getpid()} {step_num}\n")
        time.sleep(0.02)


def train(folder: Path) -> Tensor:
    """Train on, from the last checkpoint in a folder, and return the weights."""
    checkpoints = Checkpoints((every(2), "epoch"), resume=True)
    tm = make(folder / "training", checkpoints, Steps(folder), dropout=0.5, epochs=STEPS // 6)
    tm.train()
    assert tm.step_num == STEPS
    return whole(tm)


def killed_under_torchrun(folder: Path, chance: random.Random) -> tuple[Tensor, str]:
    """Kill one of two processes at a random moment of a training that torchrun starts again.

    Returns:
        The weights in the end, and what was killed.
    """
    rank, step, delay = chance.randrange(2), chance.randrange(STEPS), chance.uniform(0, 0.03)
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    command += ["--max-restarts", "2", "-m", "tests.support.restarting", str(folder)]
    variables = {**os.environ, "GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1"}
    with open(folder / "output", "w", encoding="utf-8") as output:
        torchrun = subprocess.Popen(command, cwd=ROOT, env=variables, stdout=output, stderr=output)
        pid = _wait_for(folder / f"steps-{rank}", step, torchrun)
        time.sleep(delay)
        os.kill(pid, signal.SIGKILL)
        code = torchrun.wait(120)
    text = (folder / "output").read_text(encoding="utf-8")
    assert not code, text
    weights: Tensor = torch.load(folder / "weights")
    return weights, f"rank {rank} at step {step}"


def _wait_for(path: Path, step: int, torchrun: subprocess.Popen[bytes]) -> int:
    """Return the number of the process that has begun a step."""
    while torchrun.poll() is None:
        lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
        for line in lines:
            pid, _, number = line.partition(" ")
            if number == str(step):
                return int(pid)
        time.sleep(0.002)
    raise AssertionError("torchrun has ended")


if __name__ == "__main__":
    weights = train(Path(sys.argv[1]))
    if os.environ["RANK"] == "0":
        torch.save(weights, Path(sys.argv[1], "weights"))
