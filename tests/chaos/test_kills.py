"""Trainings that are killed at random moments lose nothing that they had saved, and come to the same end.

``make chaos`` does it some thousand times, and writes what it found into the docs.
"""

from __future__ import annotations

import os
import signal
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from tests.chaos.killing import kills_of_a_training, kills_of_ranks, kills_of_saves
from tests.chaos.victims import newest, saves, stamps, trains
from tests.support.fork_server import ForkServer
from tests.support.rotation import share_of
from train_manager.checkpoints.checkpoint import read_checkpoint
from train_manager.checkpoints.checkpoint_folder import CheckpointFolder

pytestmark = [
    pytest.mark.skipif(not hasattr(os, "fork"), reason="processes are not forked here"),
    pytest.mark.slow,
]
MEMORY = Path("/dev/shm")


def is_another_mount(tmp_path: Path) -> bool:
    return os.access(MEMORY, os.W_OK) and MEMORY.stat().st_dev != tmp_path.stat().st_dev


def test_a_save_that_is_killed_at_a_random_moment_loses_nothing(fork_server: ForkServer, tmp_path: Path) -> None:
    kills = share_of(20)
    found = kills_of_saves(fork_server, tmp_path, kills=kills)

    assert (found.faults, found.kills) == ([], kills)
    assert found.in_a_save > 0


@pytest.mark.whole
def test_nor_on_another_mount_than_the_folder_for_temporary_files(fork_server: ForkServer, tmp_path: Path) -> None:
    if not is_another_mount(tmp_path):
        pytest.skip("there is one mount only")
    with TemporaryDirectory(dir=MEMORY) as folder:
        assert kills_of_saves(fork_server, Path(folder), kills=share_of(15), size=100_000).faults == []


def test_nor_if_it_is_written_in_the_background(fork_server: ForkServer, tmp_path: Path) -> None:
    assert kills_of_saves(fork_server, tmp_path, kills=share_of(5), in_background=True).faults == []


def test_a_training_that_was_killed_six_times_comes_to_the_same_end(fork_server: ForkServer, tmp_path: Path) -> None:
    found, whole, resumed = kills_of_a_training(fork_server, tmp_path, kills=6)

    assert (found.faults, found.kills) == ([], 6)
    assert resumed == whole


@pytest.mark.whole
@pytest.mark.parametrize("rank", [0, 1])
def test_a_save_of_two_ranks_of_which_one_is_killed_loses_nothing(
    fork_server: ForkServer, tmp_path: Path, rank: int
) -> None:
    found = kills_of_ranks(fork_server, tmp_path / "training", kills=3, rank=rank)

    assert (found.faults, found.kills) == ([], 3)


def test_sigterm_in_a_save_ends_with_a_checkpoint_of_the_last_step(fork_server: ForkServer, tmp_path: Path) -> None:
    for number in range(share_of(4)):
        child = fork_server.start(saves, str(tmp_path), 300_000)
        for _ in range(number + 1):
            child.wait_for("step")  # its save has begun
        child.signal(signal.SIGTERM)

        assert child.wait() == 143
        last = [int(line.split()[1]) for line in child.output.splitlines() if line.startswith("step")][-1]
        path = CheckpointFolder(tmp_path / "checkpoints").find("last")
        assert stamps(read_checkpoint(path)) == {last}
        assert not [*tmp_path.glob("checkpoints/.tmp-*")]


def test_a_worker_of_the_data_that_is_killed_ends_the_run_and_costs_no_checkpoint(
    fork_server: ForkServer, tmp_path: Path
) -> None:
    whole = fork_server.start(trains, None, 12, 1)
    dies = fork_server.start(trains_with_a_dying_worker, str(tmp_path))

    assert dies.wait() == 1
    assert "exited unexpectedly" in dies.errors or "is killed by signal: Killed" in dies.errors
    path = CheckpointFolder(tmp_path / "checkpoints").find("last")
    assert 4 <= newest(tmp_path) == read_checkpoint(path)["counts"]["step_num"] < 8
    resumed = fork_server.start(trains, str(tmp_path), 12, 1)
    assert resumed.wait_for("sums") == whole.wait_for("sums")
    assert (resumed.wait(), whole.wait()) == (0, 0)


def trains_with_a_dying_worker(folder: str) -> None:
    trains(folder, 12, 1, dies_at=100, workers=2)
