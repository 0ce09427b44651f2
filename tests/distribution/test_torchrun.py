"""Programs that torchrun starts."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from tests.support.ranks import free_port

ROOT = Path(__file__).parents[2]
PROGRAM = """
import sys
from tests.support.rank_faults import train_and_end

train_and_end(sys.argv[1], "after")
print("ended")
"""
OF_ONE_RANK = """
import sys
from tests.support.rank_faults import train_with

act, place, rank = sys.argv[1:]
train_with(act, place, int(rank))
"""
LATE = [("before", 0), ("post_train_step_batch", 1)]

pytestmark = [pytest.mark.slow, pytest.mark.whole]


def torchrun(folder: Path, *arguments: str, program: str = PROGRAM) -> subprocess.CompletedProcess[str]:
    (folder / "program.py").write_text(program)
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2"]
    command += ["--master-addr", "127.0.0.1", "--master-port", str(free_port())]
    variables = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"}
    return subprocess.run(
        [*command, "program.py", *arguments], cwd=folder, env=variables, capture_output=True, text=True, timeout=100
    )


def test_torchrun_ends_a_training_without_a_word(tmp_path: Path) -> None:
    found = torchrun(tmp_path, "workers")

    assert found.returncode == 0, found.stderr
    assert found.stdout.count("ended") == 2
    assert found.stderr == ""


def test_torchrun_shows_the_error_of_the_process_that_has_failed(tmp_path: Path) -> None:
    found = torchrun(tmp_path, "error alone")

    assert found.returncode == 1
    assert "[rank1]: ValueError: no luck" in found.stderr
    assert "Exception in thread" not in found.stderr


def test_torchrun_ends_the_others_if_a_process_is_killed(tmp_path: Path) -> None:
    found = torchrun(tmp_path, "kill alone")  # the other one would wait longer than this test may take

    assert found.returncode == 1
    assert "Signal 9 (SIGKILL) received by PID" in found.stderr
    assert "ended" not in found.stdout


@pytest.mark.parametrize(("place", "rank"), LATE)
def test_under_torchrun_a_rank_that_comes_late_trains_with_the_others(tmp_path: Path, place: str, rank: int) -> None:
    found = torchrun(tmp_path, "come late", place, str(rank), program=OF_ONE_RANK)

    assert found.returncode == 0, found.stderr
    first, second = (torch.load(file) for file in tmp_path.glob("weights-*.pt"))
    assert first.equal(second)


@pytest.mark.parametrize(("place", "rank"), LATE)
def test_under_torchrun_a_rank_that_does_not_come_is_named_and_ended(tmp_path: Path, place: str, rank: int) -> None:
    found = torchrun(tmp_path, "sleep", place, str(rank), program=OF_ONE_RANK)  # it would sleep longer than a test may

    assert found.returncode == 1
    assert f"RankError: rank {rank} did not come to" in found.stderr
    assert "Signal 15 (SIGTERM) received by PID" in found.stderr
    assert not list(tmp_path.glob("weights-*.pt"))
