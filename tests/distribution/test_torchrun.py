"""Programs that torchrun starts."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.ranks import free_port

ROOT = Path(__file__).parents[2]
PROGRAM = """
import sys
from tests.support.rank_faults import train_and_end

train_and_end(sys.argv[1], "after")
print("ended")
"""

pytestmark = [pytest.mark.slow, pytest.mark.whole]


def torchrun(folder: Path, end: str) -> subprocess.CompletedProcess[str]:
    (folder / "program.py").write_text(PROGRAM)
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2"]
    command += ["--master-addr", "127.0.0.1", "--master-port", str(free_port())]
    variables = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"}
    return subprocess.run(
        [*command, "program.py", end], cwd=folder, env=variables, capture_output=True, text=True, timeout=100
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
