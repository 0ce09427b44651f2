"""Extensions that come and go while a run of a TrainManager is open."""

from __future__ import annotations

import pytest

from train_manager import Extension, TrainManager
from train_manager.errors import CheckError
from train_manager.testing import tiny_manager


class Notes(Extension):
    def __init__(self) -> None:
        self.seen: list[str] = []

    def pre_run(self, epoch_num: int) -> None:
        self.seen.append(f"pre_run in epoch {epoch_num}")

    def post_train_step_epoch(self) -> None:
        self.seen.append("epoch")

    def post_run(self) -> None:
        self.seen.append("post_run")


def test_an_extension_added_between_two_calls_of_one_run_gets_pre_run_then_and_post_run_once() -> None:
    notes = Notes()
    tm = tiny_manager(epochs=2)
    with tm.run():
        tm.train_epochs(1)
        tm.add_extension(notes)
        assert notes.seen == ["pre_run in epoch 1"]
        tm.train_epochs(1)
    assert notes.seen == ["pre_run in epoch 1", "epoch", "post_run"]


def test_an_extension_removed_by_a_hook_gets_post_run_then() -> None:
    notes = Notes()

    def pre_eval(train_manager: TrainManager) -> None:
        if "notes" in train_manager:
            train_manager.remove_extension("notes")
            assert notes.seen[-1] == "post_run"

    tm = tiny_manager(notes, epochs=2)
    tm.add_extension(pre_eval=pre_eval)
    tm.train()
    assert notes.seen == ["pre_run in epoch 0", "post_run"]


def test_an_extension_that_the_check_refuses_does_not_join() -> None:
    class Wrong(Notes):
        def post_train_step_epoch(self, los: float) -> None: ...  # type: ignore[override]

    wrong = Wrong()
    tm = tiny_manager(epochs=1)
    with tm.run(), pytest.raises(CheckError, match="'los'"):
        tm.add_extension(wrong)
    assert wrong.seen == []
