"""Runs that are ended before their time, by whom and why."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Any

import pytest

from tests.support.training import At, stop_at, warm_up
from train_manager import InputError, TrainManager, every
from train_manager.errors import StageError
from train_manager.extensions import Checkpoints
from train_manager.testing import Recorder, tiny_manager


@pytest.mark.parametrize("hook", ["pre_train_step_batch", "post_train_backward", "post_train_step_batch"])
def test_stop_ends_the_run_after_this_step(hook: str) -> None:
    recorder = Recorder()
    tm = tiny_manager(stop_at(hook), recorder, epochs=2)
    tm.train()

    assert (tm.step_num, tm.epoch_num, tm.stop_reason) == (1, 0, "enough")
    assert recorder.hooks[-3:] == ["post_train_step_epoch", "post_train", "post_run"]


def in_the_last_step(tm: TrainManager) -> bool:
    return tm.step_num == 3


@pytest.mark.parametrize("hook", ["post_train_step_batch", "post_train_step_epoch"])
def test_an_epoch_that_a_stop_ended_with_its_last_batch_counts_and_is_evaluated(hook: str) -> None:
    recorder = Recorder()
    tm = tiny_manager(stop_at(hook, when=in_the_last_step), recorder, lr_schedule=warm_up, epochs=3)
    tm.train()

    assert (tm.step_num, tm.epoch_num, tm.lr_schedule.last_epoch) == (3, 1, 1)
    assert recorder.hooks[-3:] == ["post_eval", "post_train", "post_run"]
    assert recorder.stages.count("eval") == 2


def test_an_epoch_that_a_stop_cut_short_is_not_evaluated() -> None:
    recorder = Recorder()
    tm = tiny_manager(stop_at("post_train_step_batch", when=lambda tm: tm.step_num == 2), recorder)
    tm.train()

    assert (tm.step_num, tm.epoch_num, recorder.stages.count("eval")) == (2, 0, 1)


def test_training_again_in_a_run_that_was_stopped_warns() -> None:
    tm = tiny_manager(stop_at("post_train_step_batch"))
    with tm.run():
        tm.train()
        with pytest.warns(UserWarning, match=r"this run was stopped \(enough\), so nothing more is trained") as caught:
            tm.train()

    assert tm.step_num == 1
    assert caught[0].filename == __file__


@pytest.mark.parametrize("hook", ["pre_train_step_epoch", "pre_train_step_batch", "post_train_step_epoch"])
def test_stop_at_an_epoch_ends_the_run_after_this_epoch(hook: str) -> None:
    recorder = Recorder()
    tm = tiny_manager(stop_at(hook, at="epoch"), recorder, epochs=3)
    tm.train()

    assert (tm.step_num, tm.epoch_num, recorder.stages.count("eval")) == (3, 1, 2)


@pytest.mark.parametrize("hook", ["pre_run", "pre_load_checkpoint", "pre_train", "pre_eval", "post_eval"])
@pytest.mark.parametrize("at", ["step", "epoch"])
def test_stop_before_the_first_step_trains_nothing(hook: str, at: str) -> None:
    tm = tiny_manager(stop_at(hook, at=at), epochs=2)
    tm.train()

    assert (tm.step_num, tm.stop_reason) == (0, "enough")


def test_stop_in_an_evaluation_between_two_steps_trains_no_further_step() -> None:
    tm = tiny_manager(
        At("post_train_step_batch", lambda train_manager: train_manager.eval_soon()),
        stop_at("post_eval", when=lambda tm: tm.step_num == 1),
    )
    tm.train()

    assert tm.step_num == 1


def test_stop_in_the_last_evaluation_of_an_epoch_ends_the_run() -> None:
    tm = tiny_manager(stop_at("post_eval", when=lambda tm: tm.epoch_num == 2), epochs=5)
    tm.train()

    assert tm.epoch_num == 2


def test_a_stopped_manager_can_train_again() -> None:
    tm = tiny_manager(stop_at("post_train_step_batch", when=lambda tm: tm.step_num == 1))
    tm.train()
    tm.train()

    assert (tm.epoch_num, tm.step_num, tm.stop_reason) == (1, 4, None)


def test_stop_is_refused_where_no_run_is_open() -> None:
    with pytest.raises(StageError) as caught:
        tiny_manager().stop("enough")

    assert str(caught.value) == "stop() was called, but no run is open\n  open stages  none"


def test_stop_at_something_else_is_refused() -> None:
    tm = tiny_manager()
    with tm.run(), pytest.raises(InputError) as caught:
        tm.stop("enough", at="batch")

    assert str(caught.value) == "at must be 'step' or 'epoch', but is 'batch'"


def test_an_evaluation_cannot_be_asked_for_outside_of_a_run() -> None:
    with pytest.raises(StageError) as caught:
        tiny_manager().eval_soon()

    assert str(caught.value).splitlines() == [
        "eval_soon() was called, but no run is open",
        "  open stages  none",
        "  outside of a run, evaluate at once: tm.eval()",
    ]


def told_on_interrupt(hook: str, at_step: int, *checkpoints: Checkpoints, **options: Any) -> list[str]:
    """Return what an interrupt in a hook of one step tells as it leaves the run."""

    def interrupt(step_num: int) -> None:
        if step_num == at_step:
            raise KeyboardInterrupt

    tm = tiny_manager(*checkpoints, At(hook, interrupt), **options)
    with pytest.raises(KeyboardInterrupt) as caught:
        tm.train()
    return [note for note in caught.value.__notes__ if note.startswith("stopped")]


def test_an_interrupt_says_that_nothing_was_saved() -> None:
    assert told_on_interrupt("post_train_backward", 4, epochs=3) == [
        "stopped at step 4; this run has saved no checkpoint (the extension Checkpoints saves and resumes)"
    ]


def test_an_interrupt_names_the_step_of_the_last_checkpoint(tmp_path: Path) -> None:
    checkpoints = Checkpoints(save_at=every(3))

    assert told_on_interrupt("post_train_backward", 4, checkpoints, epochs=3, train_dir=tmp_path) == [
        "stopped at step 4; with Checkpoints(resume=True) the program goes on from step 3, which is saved"
    ]


def test_an_interrupt_that_a_signal_sends_says_that_its_step_is_saved_and_nothing_else(tmp_path: Path) -> None:
    def interrupt(step_num: int) -> None:
        if step_num == 4:
            signal.raise_signal(signal.SIGINT)

    tm = tiny_manager(Checkpoints(), At("post_train_backward", interrupt), epochs=3, train_dir=tmp_path)
    with pytest.raises(KeyboardInterrupt) as caught:
        tm.train()

    assert caught.value.__notes__ == [
        "stopped at step 5; with Checkpoints(resume=True) the program goes on from this step, which is saved"
    ]


def test_an_interrupt_in_a_phase_names_the_checkpoint_of_the_phase(tmp_path: Path) -> None:
    def interrupt(step_num: int) -> None:
        if step_num == 4:
            raise KeyboardInterrupt

    saves = Checkpoints(save_at=every(3))
    tm = tiny_manager(saves, At("post_train_backward", interrupt), epochs=3, train_dir=tmp_path)
    with pytest.raises(KeyboardInterrupt) as caught, tm.run(), tm.phase("head"):
        tm.train()

    assert caught.value.__notes__[-1].endswith("the program goes on from step 3, which is saved")


def test_an_interrupt_of_an_evaluation_says_nothing_of_checkpoints() -> None:
    def interrupt() -> None:
        raise KeyboardInterrupt

    tm = tiny_manager(At("pre_eval", interrupt))
    with pytest.raises(KeyboardInterrupt) as caught:
        tm.eval()

    assert not any(note.startswith("stopped") for note in caught.value.__notes__)
