"""A program of several training calls that is killed, and made again from its top."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.support.resuming import differences, state_of
from tests.support.rotation import part_of
from train_manager import Extension, TrainManager, every
from train_manager.errors import CheckpointError
from train_manager.extensions import Accumulate, Checkpoints
from train_manager.testing import tiny_manager

Program = Callable[[TrainManager], object]


class KilledError(Exception):
    """In place of a kill."""


class KillAt(Extension):
    def __init__(self, step: int) -> None:
        self.step = step

    def post_train_step_batch(self, step_num: int) -> None:
        if step_num == self.step:
            raise KilledError


class StopAt(Extension):
    """Stop at a step, as an early stop does."""

    def __init__(self, step: int) -> None:
        self.step = step

    def post_train_step_batch(self, step_num: int, train_manager: TrainManager) -> None:
        if step_num == self.step:
            train_manager.stop("enough")


def manager(*extensions: Extension, train_dir: Path, **options: Any) -> TrainManager:
    saved = Checkpoints(every(1), resume=True)
    return tiny_manager(saved, *extensions, **{"epochs": 2, "seed": 0, "train_dir": train_dir, **options})


def killed_and_resumed(program: Program, folder: Path, at: int, *extensions: Callable[[], Extension]) -> TrainManager:
    """Kill a program in a step, and make it again."""
    with pytest.raises(KilledError):
        program(manager(*(make() for make in extensions), KillAt(at), train_dir=folder))
    tm = manager(*(make() for make in extensions), train_dir=folder)
    program(tm)
    return tm


def assert_the_same(program: Program, folder: Path, at: int, *extensions: Callable[[], Extension]) -> None:
    """Assert that a killed program comes to the weights, optimizer, counts and history of an uninterrupted one."""
    program(whole := manager(*(make() for make in extensions), train_dir=folder / "whole"))
    resumed = killed_and_resumed(program, folder / "killed", at, *extensions)
    one, other = state_of(whole), state_of(resumed)
    for part in ("model", "optimizers", "counts", "history", "program", "random", "windows"):
        assert not differences(one[part], other[part], part)


def smaller_rate_between(tm: TrainManager) -> None:
    tm.train_steps(3)
    assert isinstance(tm.optimizer, torch.optim.Optimizer)
    tm.optimizer.param_groups[0]["lr"] *= 0.1
    tm.train_steps(3)


def test_what_a_program_does_between_two_calls_is_done_once(tmp_path: Path) -> None:
    assert_the_same(smaller_rate_between, tmp_path, 5)


def another_optimizer_between(tm: TrainManager) -> None:
    tm.train_steps(3)
    tm.optimizer = torch.optim.AdamW(tm.model.parameters(), lr=0.1)
    tm.train_steps(3)


@pytest.mark.parametrize("at", [2, 5])
def test_a_program_that_takes_another_optimizer_between_two_calls_continues_with_it(tmp_path: Path, at: int) -> None:
    assert_the_same(another_optimizer_between, tmp_path, at)


def test_an_evaluation_between_two_calls_is_recorded_once(tmp_path: Path) -> None:
    def program(tm: TrainManager) -> None:
        tm.train_epochs(1)
        tm.eval()
        tm.train_epochs(1)

    assert_the_same(program, tmp_path, 5)


def test_a_call_that_is_over_opens_no_stage_so_that_extensions_keep_what_they_have_loaded(tmp_path: Path) -> None:
    def program(tm: TrainManager) -> None:
        with tm.run():
            tm.train_steps(3)
            tm.train_steps(4)

    assert_the_same(program, tmp_path, 6, lambda: Accumulate(2))


@pytest.mark.parametrize(
    "first", [lambda tm: tm.train(), lambda tm: tm.train_epochs(2), lambda tm: tm.train_steps(6)], ids="tes"
)
def test_a_call_that_was_stopped_early_is_over_once_another_one_was_made(first: Program, tmp_path: Path) -> None:
    def program(tm: TrainManager) -> None:
        first(tm)
        tm.train_steps(5)

    assert_the_same(program, tmp_path, 6, lambda: StopAt(2))


def test_all_kinds_of_calls_killed_in_each_of_them(tmp_path: Path) -> None:
    def program(tm: TrainManager) -> None:
        tm.train_steps(3)
        tm.train_epochs(1)
        with tm.run():
            tm.epochs = 3
            tm.train()
            with tm.phase("more"):
                tm.train_steps(3)

    for at in part_of((2, 5, 8, 11), 2, 1):
        assert_the_same(program, tmp_path / str(at), at)


def test_train_goes_up_to_more_epochs_than_the_checkpoint_was_to_have(tmp_path: Path) -> None:
    manager(train_dir=tmp_path, epochs=1).train()
    tm = manager(train_dir=tmp_path, epochs=3)
    tm.train()

    assert tm.epoch_num == 3


def test_a_store_that_loads_in_each_run_counts_no_call_twice() -> None:
    class Store(Extension):
        kept: dict[str, Any] | None = None

        def pre_load_checkpoint(self, train_manager: TrainManager) -> None:
            if self.kept is not None:
                train_manager.load_state_dict(self.kept)

        def post_train_step_epoch(self, train_manager: TrainManager) -> None:
            train_manager.save_soon()

        def pre_save_checkpoint(self, train_manager: TrainManager) -> None:
            self.kept = train_manager.state_dict()

    tm = tiny_manager(Store(), epochs=2)
    tm.train_steps(3)
    tm.train_steps(3)

    assert tm.step_num == 6


def test_a_state_that_does_not_fit_leaves_the_calls_as_they_were() -> None:
    tm, other = tiny_manager(), tiny_manager(model=torch.nn.Linear(2, 2))
    other.train_steps(3)
    with pytest.raises(CheckpointError, match="does not fit"):
        tm.load_state_dict(other.state_dict())

    assert tm.state_dict()["program"] == []


def test_a_state_of_another_form_is_an_error_that_says_so() -> None:
    tm = tiny_manager()
    with pytest.raises(CheckpointError) as error:
        tm.load_state_dict({**tm.state_dict(), "counts": {}})

    assert str(error.value) == (
        "a part of the state cannot be loaded (KeyError: 'step_num')\n"
        "  make the training anew before you load another one, for parts of this one may have been restored"
    )


def test_what_a_hook_changes_of_a_loaded_state_stays(tmp_path: Path) -> None:
    class Lower(Extension):
        def post_load_checkpoint(self, train_manager: TrainManager) -> None:
            assert isinstance(train_manager.optimizer, torch.optim.Optimizer)
            train_manager.optimizer.param_groups[0]["lr"] = 0.125

    def program(tm: TrainManager) -> TrainManager:
        tm.train_steps(2)
        tm.train_steps(2)
        return tm

    program(manager(train_dir=tmp_path))
    tm = program(manager(Lower(), train_dir=tmp_path))

    assert tm.learning_rates == {"optimizer": (0.125,)}


class OfAnotherVersion(Extension):
    """An extension of somebody else, which cannot load what an older one has saved."""

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        raise OSError("a file of it is missing")


def test_a_state_that_an_extension_cannot_load_is_told_by_its_name() -> None:
    tm = tiny_manager(OfAnotherVersion())

    with pytest.raises(CheckpointError) as caught:
        tm.load_state_dict(tm.state_dict())
    assert str(caught.value).splitlines()[:2] == [
        "the state of extension 'of_another_version' cannot be loaded (OSError: a file of it is missing)",
        "  make the training anew before you load another one, for parts of this one may have been restored",
    ]
    assert isinstance(caught.value.__cause__, OSError)


def test_a_program_whose_epochs_were_raised_twice_comes_to_the_place_of_its_checkpoint(tmp_path: Path) -> None:
    def freezes(tm: TrainManager) -> None:
        tm.model[0].requires_grad_(False)

    for epochs in (1, 2):
        tm = manager(epochs=epochs, train_dir=tmp_path)
        tm.add_extension(post_train_step_epoch=lambda train_manager: freezes(train_manager))
        tm.train()
    longer = manager(epochs=3, train_dir=tmp_path)
    longer.train()

    assert [one.requires_grad for one in longer.model.parameters()] == [False, False, True, True]
