"""Processes that train together save one checkpoint, and resume from it on any number of processes."""

from __future__ import annotations

import random
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.support import restarting
from tests.support.fork_server import ForkServer
from tests.support.rank_resuming import (
    STOP_AT,
    draws,
    resume_from_own_disk,
    resume_twice,
    steps_in,
    stop_and_resume,
    train_anew,
    train_on,
    train_on_full_disk,
    train_until_signal,
    train_with_defaults,
)
from tests.support.ranks import ends_of, on_ranks, start_ranks
from train_manager.telling.errors import CheckpointError, RankError


def epochs_of(outcome: dict[str, Any]) -> list[dict[str, Any]]:
    return [
        {name: value for name, value in row.items() if name not in ("seconds", "call")} for row in outcome["epochs"]
    ]


@pytest.mark.slow
@pytest.mark.parametrize(
    "strategy", ["after", *(pytest.param(one, marks=pytest.mark.whole) for one in ("ddp", "fsdp"))]
)
def test_as_many_ranks_resume_within_an_epoch_to_the_bit(
    fork_server: ForkServer, tmp_path: Path, strategy: str
) -> None:
    options = {"dropout": 0.5, "strategy": strategy}

    for whole, stopped, resumed in on_ranks(fork_server, 2, _stop_and_resume, tmp_path, options, folder=tmp_path):
        assert torch.equal(resumed["weights"], whole["weights"])
        assert epochs_of(resumed) == epochs_of(whole)
        assert resumed["evaluations"][-2:] == whole["evaluations"][-2:]
        # The fixtures are the same on all ranks: paths of rank 0's.
        assert resumed["loaded"] == stopped["saved"][-1] == tmp_path / "stopped/checkpoints" / f"step-{STOP_AT:012}"
    assert steps_in(tmp_path / "stopped") == [STOP_AT, 18]


def _stop_and_resume(folder: Path, options: dict[str, Any]) -> Any:
    return stop_and_resume(folder, **options)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:the run ended within a window", "ignore:.* was written with")
@pytest.mark.parametrize(
    ("before", "after", "window"),
    [
        (2, 1, 3),
        (1, 2, 0),
        *(
            pytest.param(*pair, window, marks=pytest.mark.whole)
            for window in (0, 3)
            for pair in [(2, 1), (1, 2), (2, 3), (3, 2), (3, 1), (1, 3)]
            if (*pair, window) not in [(2, 1, 3), (1, 2, 0)]
        ),
    ],
)
def test_a_training_resumes_on_another_number_of_ranks(
    fork_server: ForkServer, tmp_path: Path, before: int, after: int, window: int
) -> None:
    folder, options = tmp_path / "training", {"window": window}
    alone = train_on(tmp_path / "alone", **options)

    _on(fork_server, before, folder, {**options, "stop_at": STOP_AT}, tmp_path)
    resumed = _on(fork_server, after, folder, options, tmp_path)

    for one in resumed:
        torch.testing.assert_close(one["weights"], alone["weights"], atol=1e-6, rtol=0)
        assert torch.equal(one["weights"], resumed[0]["weights"])
        for row, of_alone in zip(epochs_of(one), epochs_of(alone), strict=True):
            assert row == pytest.approx(of_alone, abs=1e-6)
        assert one["samples_seen"] == alone["samples_seen"]
        assert one["updates"] == alone["updates"]


@pytest.mark.slow
@pytest.mark.whole
@pytest.mark.filterwarnings("ignore:the run ended within a window", "ignore:.* was written with")
@pytest.mark.parametrize("window", [0, 3])
@pytest.mark.parametrize(("after", "strategy"), [(1, "fsdp"), (2, "fsdp"), (3, "fsdp"), (2, "ddp"), (2, "after")])
def test_a_training_with_shards_resumes_in_another_strategy(
    fork_server: ForkServer, tmp_path: Path, after: int, strategy: str, window: int
) -> None:
    folder = tmp_path / "training"
    options: dict[str, Any] = {"window": window, "strategy": strategy}
    alone = train_on(tmp_path / "alone", **options)

    _on(fork_server, 2, folder, {**options, "strategy": "fsdp", "stop_at": STOP_AT}, tmp_path)
    resumed = _on(fork_server, after, folder, options, tmp_path)

    for one in resumed:
        torch.testing.assert_close(one["weights"], alone["weights"], atol=1e-6, rtol=0)
        for row, of_alone in zip(epochs_of(one), epochs_of(alone), strict=True):
            assert row == pytest.approx(of_alone, abs=1e-6)


def _on(fork_server: ForkServer, number: int, folder: Path, options: dict[str, Any], at: Path) -> list[dict[str, Any]]:
    if number == 1:
        return [train_on(folder, **options)]
    return on_ranks(fork_server, number, _train_on, folder, options, folder=at)


def _train_on(folder: Path, options: dict[str, Any]) -> dict[str, Any]:
    return train_on(folder, **options)


@pytest.mark.slow
@pytest.mark.whole
def test_a_rank_resumes_with_its_random_states_and_a_further_one_with_others(
    fork_server: ForkServer, tmp_path: Path
) -> None:
    folder = tmp_path / "training"

    saved = [one["saved"] for one in on_ranks(fork_server, 2, draws, folder, STOP_AT, folder=tmp_path)]
    of_three = [one["loaded"] for one in on_ranks(fork_server, 3, draws, folder, STOP_AT + 1, folder=tmp_path)]
    shutil.rmtree(folder / "checkpoints" / f"step-{STOP_AT + 1:012}")
    of_two = [one["loaded"] for one in on_ranks(fork_server, 2, draws, folder, folder=tmp_path)]

    assert of_two == saved
    assert of_three[0] == saved[0]
    assert len({*saved, *of_three}) == 4


@pytest.mark.slow
def test_two_ranks_save_one_set_of_checkpoints_and_one_holds_the_lock(fork_server: ForkServer, tmp_path: Path) -> None:
    first, second = on_ranks(fork_server, 2, train_with_defaults, tmp_path / "training", folder=tmp_path)

    assert first["saved"] == second["saved"] == [path for path in first["saved"] if path.is_dir()]
    assert steps_in(tmp_path / "training") == [6, 12, 18]
    assert (first["has_locked"], second["has_locked"]) == (True, False)
    assert sorted(path.name for path in (tmp_path / "training").iterdir()) == [".lock", "checkpoints"]


@pytest.mark.slow
@pytest.mark.whole
def test_rank_0_moves_the_folder_of_a_training_that_begins_anew(fork_server: ForkServer, tmp_path: Path) -> None:
    first, second = on_ranks(fork_server, 2, train_anew, tmp_path / "training", folder=tmp_path)

    assert first["saved"] == second["saved"]
    assert first["best"] == second["best"]
    assert steps_in(tmp_path / "training-before-1") == [6, 12, 18]
    assert steps_in(tmp_path / "training")[-1:] == [int(path.name[5:]) for path in first["saved"][-1:]]
    assert not (tmp_path / "training-before-2").exists()


@pytest.mark.slow
@pytest.mark.whole
def test_ranks_resume_without_the_disk_of_rank_0(fork_server: ForkServer, tmp_path: Path) -> None:
    for whole, resumed in on_ranks(fork_server, 2, resume_from_own_disk, tmp_path, folder=tmp_path):
        assert torch.equal(resumed["weights"], whole["weights"])
        assert epochs_of(resumed) == epochs_of(whole)
    assert [path.name for path in (tmp_path / "stopped").iterdir()] == ["disk-0"]


@pytest.mark.slow
@pytest.mark.whole
@pytest.mark.parametrize("in_background", [False, True])
def test_a_checkpoint_that_cannot_be_written_is_an_error_of_all_ranks(
    fork_server: ForkServer, tmp_path: Path, in_background: bool
) -> None:
    children = start_ranks(fork_server, 2, train_on_full_disk, tmp_path / "training", in_background, folder=tmp_path)
    first, second = ends_of(children, tmp_path)

    assert isinstance(first.error, OSError)
    assert isinstance(second.error, RankError)
    assert str(second.error).startswith("rank 0 has failed: OSError: [Errno 28] no space left")


@pytest.mark.slow
@pytest.mark.whole
def test_checkpoints_that_are_there_are_an_error_of_all_ranks(fork_server: ForkServer, tmp_path: Path) -> None:
    children = start_ranks(fork_server, 2, resume_twice, tmp_path / "training", folder=tmp_path)
    first, second = ends_of(children, tmp_path)

    assert isinstance(first.error, CheckpointError)
    assert isinstance(second.error, RankError)
    assert str(second.error).startswith(f"rank 0 has failed: CheckpointError: {tmp_path}/training/checkpoints has ")


@pytest.mark.slow
@pytest.mark.parametrize("rank", [pytest.param(0, marks=pytest.mark.whole), 1])
def test_a_signal_to_one_rank_stops_all_with_one_checkpoint(fork_server: ForkServer, tmp_path: Path, rank: int) -> None:
    folder = tmp_path / "training"

    ends = on_ranks(fork_server, 2, train_until_signal, folder, rank, folder=tmp_path)

    path = folder / "checkpoints" / f"step-{5:012}"
    assert [end["step"] for end in ends] == [5, 5]
    assert [end["saved"] for end in ends] == [[path], [path]]
    assert [end["reason"] for end in ends] == ["SIGTERM", "SIGTERM"]
    assert [end["code"] for end in ends] == [143 if one == rank else None for one in (0, 1)]
    assert steps_in(folder) == [5]


@pytest.mark.slow
@pytest.mark.whole
def test_torchrun_starts_killed_ranks_again_and_they_come_to_the_same_weights(
    fork_server: ForkServer, tmp_path: Path
) -> None:
    for name in ("whole", "killed"):
        (tmp_path / name).mkdir()
    of_whole = on_ranks(fork_server, 2, restarting.train, tmp_path / "whole", folder=tmp_path)

    weights, killed = restarting.killed_under_torchrun(tmp_path / "killed", random.Random(0))

    assert torch.equal(weights, of_whole[0]), killed
    processes = {line.split()[0] for line in (tmp_path / "killed/steps-0").read_text("utf-8").splitlines()}
    assert len(processes) == 2  # it was started again once
