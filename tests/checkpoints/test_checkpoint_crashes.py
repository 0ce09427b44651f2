"""A save that is killed at any line, or cut off by a power failure, loses nothing that was there before."""

from __future__ import annotations

import json
import os
import tempfile
from pathlib import Path

import pytest

from tests.checkpoints.crash_points import state_of
from tests.checkpoints.power_loss import disk_states, lay_out, recorded
from tests.checkpoints.states import small_state
from tests.support.fork_server import ForkServer
from tests.support.programs import module
from tests.support.rotation import share_of, stride
from train_manager.checkpoints.checkpoint import write_checkpoint

ROOT = Path(__file__).parents[2]
STEPS = (1, 2, 3)


@pytest.mark.slow
def test_a_save_that_is_killed_at_any_line_corrupts_nothing(tmp_path: Path, fork_server: ForkServer) -> None:
    every = stride(9)
    memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else tmp_path  # a kill is the same there, and a sync is free
    with tempfile.TemporaryDirectory(dir=memory) as folder:
        done = fork_server.run(module, "tests.checkpoints.crash_points", folder, str(every))

    assert done.code == 0, done.errors
    counts = json.loads(done.output)
    assert counts["points"] * every > 100
    assert 0 < counts["written"] < counts["points"]
    assert (counts["corrupt"], counts["lost"], counts["next save failed"]) == (0, 0, 0)


def losses(folder: Path, times: int, without: tuple[str, ...] = ()) -> dict[str, int]:
    """Save three times, and count what disks after a power failure have lost."""
    with recorded(folder / "real", without=without) as recording:
        for step in STEPS:
            write_checkpoint(folder / "real", f"step-{step:012d}", small_state(step), {})
            recording.acknowledge(f"step-{step:012d}")
    counts = {"acknowledged saves lost": 0, "unusable": 0, "taken for another": 0}
    for number, (acknowledged, disk) in enumerate(disk_states(recording.steps, times)):
        lay_out(disk, after := folder / str(number))
        found = {path.name: state_of(path) for path in after.glob("step-*")}
        sound = {name for name, step in found.items() if step is not None}
        counts["acknowledged saves lost"] += not {*acknowledged} <= sound
        counts["unusable"] += bool(acknowledged) and not sound
        counts["taken for another"] += any(name != f"step-{found[name]:012d}" for name in sound)
    return counts


def test_a_power_failure_loses_no_save_that_was_acknowledged(tmp_path: Path) -> None:
    assert losses(tmp_path, share_of(400)) == {"acknowledged saves lost": 0, "unusable": 0, "taken for another": 0}


@pytest.mark.parametrize("sync", ["sync", "sync folder"])
def test_without_each_kind_of_sync_a_power_failure_would_lose_some(tmp_path: Path, sync: str) -> None:
    """The model of a power failure is able to find a missing sync; what is found then is still never a wrong one."""
    counts = losses(tmp_path, 100, without=(sync,))

    assert counts["acknowledged saves lost"] > 0
    assert counts["taken for another"] == 0
