from __future__ import annotations

import contextlib
import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support.training import At
from train_manager import Extension, TrainManager
from train_manager.extensions import EMA, Checkpoints, EarlyStopping, Log, RunRecord, TimeLimit
from train_manager.testing import tiny_manager

LAST = "the model has its last weights"
NOTHING_SAVED = "this run has saved no checkpoint (the extension Checkpoints saves and resumes)"


def ending(
    *extensions: Extension, call: Callable[[TrainManager], object] = TrainManager.train, **options: Any
) -> list[str]:
    """Run a program that makes a call, and return what it prints beside the table."""
    log = Log(file=io.StringIO())
    with contextlib.suppress(ValueError, KeyboardInterrupt):
        call(tiny_manager(log, *extensions, **options))
    assert isinstance(log.file, io.StringIO)
    words = ("done", "stopped", "look", "its files", "resumes")
    return [line for line in log.file.getvalue().splitlines() if line.startswith(words)]


def at_step(step: int, function: Callable[[TrainManager], object]) -> Extension:
    def look(step_num: int, train_manager: TrainManager) -> None:
        if step_num == step:
            function(train_manager)

    return At("post_train_step_batch", look)


def fail(error: BaseException) -> Callable[[TrainManager], None]:
    def function(train_manager: TrainManager) -> None:
        raise error

    return function


def test_a_completed_training_says_after_which_epoch_and_which_weights_the_model_has() -> None:
    assert ending(epochs=2) == [f"done after epoch 2/2 (step 6); {LAST}, the best by valid/loss (0.6540)"]


def test_a_training_without_an_evaluation_says_nothing_of_weights() -> None:
    assert ending(epochs=2, eval_data=None) == ["done after epoch 2/2 (step 6)"]


def test_the_best_epoch_is_named_if_its_weights_are_not_in_the_model() -> None:
    worse = At("post_eval_step_epoch", lambda eval_result, epoch_num: eval_result.update(loss=abs(epoch_num - 2)))
    best = "the best by valid/loss were those of epoch 2 (0.000)"
    assert ending(worse, epochs=3) == [f"done after epoch 3/3 (step 9); {LAST}; {best}"]


def test_weights_that_early_stopping_puts_back_are_told_once() -> None:
    worse = At("post_eval_step_epoch", lambda eval_result, epoch_num: eval_result.update(loss=1.0 + epoch_num))
    assert ending(EarlyStopping(patience=1, restore_best=True), worse, epochs=9) == [
        "stopped after epoch 2/9 (step 6): EarlyStopping: 'valid/loss' was no better than 2 in 1 evaluations; "
        "the model has the weights of epoch 1; the best by valid/loss were those of the start (1.000)"
    ]


def test_an_average_that_is_evaluated_is_not_in_the_model() -> None:
    assert ending(EMA(decay=0.1), epochs=2)[0].endswith("; the average of EMA is not in the model")


def test_a_stop_within_an_epoch_names_the_epoch_and_the_reason() -> None:
    (line,) = ending(at_step(4, lambda tm: tm.stop("loss reached")), epochs=3)
    assert line.startswith("stopped in epoch 2/3 (step 4): loss reached; ")


def test_a_stop_before_the_first_step_says_nothing_of_weights() -> None:
    reason = "TimeLimit: no step fits into what is left of 0:00:00"
    assert ending(TimeLimit(0)) == [f"stopped in epoch 1 (step 0): {reason}"]


def test_an_error_is_named_with_what_is_saved() -> None:
    assert ending(at_step(4, fail(ValueError("x"))), epochs=3) == [
        f"stopped in epoch 2/3 (step 4): ValueError; {NOTHING_SAVED}"
    ]


def test_an_error_before_the_first_step_has_no_line() -> None:
    assert ending(At("pre_train", fail(ValueError("x")))) == []


def test_after_an_interrupt_the_line_says_how_to_resume_and_the_exception_does_not(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    interrupt = at_step(4, fail(KeyboardInterrupt()))
    with pytest.raises(KeyboardInterrupt) as caught:
        tiny_manager(Log(), Checkpoints(), interrupt, epochs=3, train_dir=tmp_path).train()
    assert capsys.readouterr().out.splitlines()[-2] == (
        "stopped in epoch 2/3 (step 4): KeyboardInterrupt; "
        "with Checkpoints(resume=True) the program goes on from step 3, which is saved"
    )
    assert not any("resume" in note for note in caught.value.__notes__)


def test_lines_in_a_file_of_their_own_leave_it_to_the_exception_to_say_how_to_resume() -> None:
    with pytest.raises(KeyboardInterrupt) as caught:
        tiny_manager(Log(file=io.StringIO()), at_step(2, fail(KeyboardInterrupt()))).train()
    assert caught.value.__notes__[-1] == f"stopped at step 2; {NOTHING_SAVED}"


def test_the_command_that_shows_the_files_fits_what_is_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert ending(train_dir="empty", eval_data=None) == ["done after epoch 1 (step 3)"]
    assert ending(Checkpoints(), train_dir="runs/a b")[1:] == ["look at it: train-manager show 'runs/a b'"]
    assert ending(Checkpoints(), RunRecord(), train_dir="both")[1:] == ["look at it: train-manager report both"]
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "notes.txt").touch()
    assert ending(train_dir="other")[1:] == ["its files are in other"]


def test_a_resumed_training_with_nothing_left_to_do_has_no_last_line(tmp_path: Path) -> None:
    tiny_manager(Checkpoints(), train_dir=tmp_path).train()
    with pytest.warns(UserWarning, match="nothing to do"):
        assert len(ending(Checkpoints(resume=True), train_dir=tmp_path)) == 1  # where it resumes


def many_calls(tm: TrainManager) -> None:
    tm.train_epochs(1)
    tm.train_epoch()
    tm.train_on_batch(tm.train_data[0])  # type: ignore[index]
    tm.eval()
    tm.predict([tm.train_data[0]])  # type: ignore[index]


def test_calls_of_an_epoch_or_a_batch_and_evaluations_have_no_last_line() -> None:
    assert ending(call=many_calls) == []


def with_a_phase(tm: TrainManager) -> None:
    with tm.phase("head", epochs=1):
        tm.train()
    tm.train()


def test_each_run_has_a_last_line_and_a_phase_that_is_a_run_names_its_step() -> None:
    assert [line.partition(";")[0] for line in ending(call=with_a_phase)] == [
        "done at step 3",
        "done after epoch 1 (step 6)",
    ]


def held(tm: TrainManager) -> None:
    with tm.run():
        with_a_phase(tm)


def test_a_run_that_the_program_holds_open_has_one_last_line() -> None:
    assert len(ending(call=held)) == 1
