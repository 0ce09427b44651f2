"""Runs that are ended before their time, by whom and why."""

from __future__ import annotations

import signal
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.training import At, stop_at, warm_up
from train_manager import (
    InputError,
    StageError,
    TrainManager,
    every,
)
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


def test_stop_at_a_step_goes_before_stop_at_an_epoch() -> None:
    tm = tiny_manager(stop_at("pre_train_step_batch"), stop_at("post_train_step_batch", at="epoch"))
    tm.train()

    assert tm.step_num == 1


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


def interrupted(call: str, at_step: int, **options: Any) -> tuple[TrainManager, list[str]]:
    """A training that was interrupted in the backward of a step, and the notes of the interrupt about it."""

    def interrupt(step_num: int) -> None:
        if step_num == at_step:
            tm.remove_extension("interrupts")
            raise KeyboardInterrupt

    tm = tiny_manager(extensions={"interrupts": At("post_train_backward", interrupt)}, **options)
    with pytest.raises(KeyboardInterrupt) as caught:
        getattr(tm, call)(*(() if call == "train" else (9,)))
    return tm, [note for note in caught.value.__notes__ if note.startswith("stopped")]


@pytest.mark.parametrize("call", ["train", "train_epochs", "train_steps"])
def test_an_interrupt_at_a_prompt_says_where_the_next_call_begins(call: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "ps1", ">>> ", raising=False)

    tm, notes = interrupted(call, 4, epochs=3)
    getattr(tm, call)(*(() if call == "train" else (3,)))

    assert notes == [f"stopped at step 4; the next tm.{call}() begins epoch 2 anew, with the weights as they are"]
    assert [row["step"] for row in tm.history.epochs][:2] == [3, 7]  # three steps after those of before


@pytest.mark.parametrize("saved_by", ["after this step", "before"])
def test_an_interrupt_at_a_prompt_names_a_checkpoint_of_this_step(
    saved_by: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "ps1", ">>> ", raising=False)

    def interrupt(step_num: int) -> None:
        if step_num == 4:
            signal.raise_signal(signal.SIGINT)

    save_at = "end" if saved_by == "after this step" else every(3)
    checkpoints = Checkpoints(save_at=save_at)
    tm = tiny_manager(checkpoints, At("post_train_backward", interrupt), epochs=3, train_dir=tmp_path)
    with pytest.raises(KeyboardInterrupt) as caught:
        tm.train()

    note = "stopped at step 5; the next tm.train() begins epoch 2 anew, with the weights as they are"
    resumes = "; a new TrainManager with Checkpoints(resume=True) continues at step 5"
    assert caught.value.__notes__[-1] == note + (resumes if saved_by == "after this step" else "")


def test_an_interrupt_after_the_last_epoch_names_no_next_call(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "ps1", ">>> ", raising=False)

    def interrupt(epoch_num: int) -> None:
        if epoch_num == 2:
            raise KeyboardInterrupt

    tm = tiny_manager(At("pre_eval", interrupt), epochs=2)
    with pytest.raises(KeyboardInterrupt) as caught:
        tm.train()

    assert caught.value.__notes__[-1] == "stopped at step 6"


def test_an_interrupt_in_a_program_which_it_ends_says_nothing_of_a_next_call() -> None:
    assert interrupted("train", 4, epochs=3)[1] == []


def test_an_interrupt_in_a_run_that_the_program_holds_open_says_nothing_of_a_next_call(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sys, "ps1", ">>> ", raising=False)

    def interrupt() -> None:
        raise KeyboardInterrupt

    tm = tiny_manager(At("post_train_backward", interrupt))
    with pytest.raises(KeyboardInterrupt) as caught, tm.run():
        tm.train()

    assert not any(note.startswith("stopped") for note in caught.value.__notes__)
