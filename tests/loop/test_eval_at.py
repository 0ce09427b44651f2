"""When training evaluates, and how often."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.training import At, Values, make_batches, skip_stage
from train_manager import InputError
from train_manager.loop.eval_at import EvalAtPoints, require_eval_at
from train_manager.schedules import every
from train_manager.testing import tiny_manager


def fail(message: str) -> None:
    raise ValueError(message)


def test_the_first_evaluation_comes_before_any_batch_or_not_at_all() -> None:
    evals = Values("pre_eval", "step_num")
    tm = tiny_manager(evals, eval_at="start")
    with tm.run():
        tm.train_on_batch(make_batches(1)[0])
        tm.train_epochs(1)

    assert evals.seen == []


def test_an_epoch_that_was_stopped_half_way_is_not_started_with_another_evaluation() -> None:
    evals = Values("pre_eval", "step_num")
    stop = At("post_train_step_batch", lambda train_manager, step_num: step_num == 1 and train_manager.stop("enough"))
    tm = tiny_manager(evals, stop, eval_at="start")
    tm.train()
    tm.train()

    assert evals.seen == [0]


def test_a_batch_of_ones_own_loop_is_no_batch_that_eval_at_says() -> None:
    evals = Values("pre_eval", "step_num")
    tm = tiny_manager(evals, eval_at=every(4))
    with tm.run():
        tm.train_steps(3)
        tm.train_on_batch(make_batches(1)[0])
        tm.train_epoch()

    assert evals.seen == []


def test_an_evaluation_that_failed_is_done_again_by_the_next_call() -> None:
    evals = Values("post_eval", "step_num")
    failures = iter([fail])
    fails_once = At("pre_eval", lambda: next(failures, lambda _: None)("not yet"))
    tm = tiny_manager(evals, fails_once, eval_at="start")
    with tm.run():
        with pytest.raises(ValueError, match="not yet"):
            tm.train()
        tm.train()

    assert evals.seen == [0]


def test_an_evaluation_that_was_skipped_is_not_tried_again_at_the_same_step() -> None:
    asked = Values("pre_eval", "step_num")
    tm = tiny_manager(asked, At("pre_eval", skip_stage), eval_at=("start", "epoch", "end"))
    tm.train()

    assert asked.seen == [0, 3]


def test_training_evaluates_once_per_step_whatever_the_reasons() -> None:
    evals = Values("pre_eval", "step_num")
    tm = tiny_manager(evals, eval_at=("start", "epoch", "end", every(1), every(3)))
    tm.train()

    assert evals.seen == [0, 1, 2, 3]


def test_an_evaluation_by_hand_is_done_whatever_was_done_before() -> None:
    evals = Values("pre_eval", "step_num")
    tm = tiny_manager(evals, eval_at="end")
    with tm.run():
        tm.train()
        tm.eval()
        tm.eval()

    assert evals.seen == [3, 3, 3]


def test_the_last_evaluation_comes_also_after_a_stop() -> None:
    evals = Values("pre_eval", "step_num")
    tm = tiny_manager(evals, At("post_train_step_batch", lambda train_manager: train_manager.stop("x")), eval_at="end")
    result = tm.train()

    assert evals.seen == [1]
    assert (result.evaluated_at, result.steps, result.epochs) == (1, 1, 0)


def test_no_points_mean_no_evaluation() -> None:
    evals = Values("pre_eval", "step_num")
    result = tiny_manager(evals, eval_at=()).train()

    assert evals.seen == []
    assert (result.metrics, result.evaluated_at) == ({}, None)


def test_a_result_says_at_which_step_its_metrics_were_found() -> None:
    result = tiny_manager(eval_at=every(2)).train()

    assert result.steps == 3
    assert result.evaluated_at == 2


def test_an_evaluation_by_hand_between_two_calls_is_not_of_the_result() -> None:
    tm = tiny_manager(eval_at=())
    with tm.run():
        tm.eval()
        result = tm.train()

    assert (result.metrics, result.evaluated_at) == ({}, None)


def test_an_epoch_of_ones_own_loop_evaluates_nothing_by_itself() -> None:
    evals = Values("pre_eval", "step_num")
    tm = tiny_manager(evals, eval_at=("start", "epoch", "end", every(1)))
    tm.train_epoch()

    assert evals.seen == []


def test_a_word_or_a_schedule_may_stand_alone() -> None:
    schedule = every(2)

    assert require_eval_at("end") == EvalAtPoints(end=True)
    assert require_eval_at(schedule) == EvalAtPoints(schedules=(schedule,))
    assert require_eval_at(["epoch", schedule]) == EvalAtPoints(epoch=True, schedules=(schedule,))


@pytest.mark.parametrize(("given", "shown"), [("epochs", "'epochs'"), (3, "3"), (["start", None], "None")])
def test_other_points_are_refused(given: Any, shown: str) -> None:
    with pytest.raises(InputError) as caught:
        tiny_manager(eval_at=given)

    assert str(caught.value) == (
        f"eval_at must be of 'start', 'epoch', 'end' and schedules, but has {shown}\n"
        '  give some of them: eval_at=("start", "epoch"), eval_at=every(250), or eval_at=() for never'
    )
