"""A training that ``TRAIN_MANAGER_STEPS`` stops."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest

from train_manager import TrainManager
from train_manager.files import train_dirs
from train_manager.loop.step_limit import StepLimit
from train_manager.telling.errors import StageError
from train_manager.testing import tiny_manager


@pytest.fixture(autouse=True)
def four_steps_of_the_second(monkeypatch: pytest.MonkeyPatch) -> None:
    """Stop the second TrainManager after four steps: in the second of its epochs, which have three."""
    monkeypatch.setattr(train_dirs, "_numbers", itertools.count(1))
    monkeypatch.setenv("TRAIN_MANAGER_STEPS", "2:4")


@pytest.fixture
def first(tmp_path: Path) -> TrainManager:
    return tiny_manager(epochs=3, train_dir=tmp_path / "first")


@pytest.fixture
def second(first: TrainManager, tmp_path: Path) -> TrainManager:
    return tiny_manager(epochs=3, train_dir=tmp_path / "second")


def test_the_training_ends_after_the_steps_as_by_a_stop(second: TrainManager) -> None:
    result = second.train()

    assert (second.step_num, second.epoch_num) == (4, 1)
    assert result.stopped == second.stop_reason == "the 4 steps of TRAIN_MANAGER_STEPS are done"


def test_another_training_goes_on_and_has_no_hook_of_it(first: TrainManager, second: TrainManager) -> None:
    second.train()
    first.train()

    assert (first.step_num, first.stop_reason) == (9, None)
    assert not any(isinstance(extension, StepLimit) for extension in first.extensions.values())


def test_a_training_call_after_the_steps_does_none(second: TrainManager) -> None:
    second.train()
    second.train_epochs(1)
    second.train_steps(5)

    assert second.step_num == 4
    assert second.eval()["valid"]["loss"] > 0


def test_in_a_phase_it_ends_the_whole_run(second: TrainManager) -> None:
    with second.run():
        with second.phase("warm up", epochs=2):
            second.train()
        with pytest.warns(UserWarning, match="this run was stopped"):
            second.train()

    assert second.step_num == 4


def test_a_loop_that_waits_for_an_epoch_is_ended(second: TrainManager, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("train_manager.loop.step_limit.MOST_CALLS", 3)

    with pytest.raises(StageError, match="all 4 steps are done, and the program has called for more 3 times"):
        while second.epoch_num < 3:
            second.train_epoch()


def test_the_losses_are_those_of_a_training_to_its_end(first: TrainManager, second: TrainManager) -> None:
    losses: list[list[float]] = [[], []]
    for manager, into in zip((first, second), losses, strict=True):
        manager.add_extension(post_train_step_batch=lambda loss, into=into: into.append(float(loss.detach())))
        manager.train()

    assert losses[1] == losses[0][:4]
