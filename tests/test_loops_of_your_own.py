"""Training by steps, by epochs and by batches, from a loop of the user's own."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from tests.support.own_loops import Steps, Unsized, make_batches, manager, weights
from tests.support.training import At, skip_batch, skip_stage
from train_manager import Endless, Extension, InputError
from train_manager.errors import StageError
from train_manager.testing import Recorder, tiny_manager

# ---- train_steps -------------------------------------------------------------------------------------------------


def test_five_steps_and_five_are_ten_bit_for_bit() -> None:
    at_once, in_turn = manager(), manager()
    at_once.train_steps(10)
    in_turn.train_steps(5)
    in_turn.train_steps(5)

    assert torch.equal(weights(in_turn), weights(at_once))
    assert (in_turn.step_num, in_turn.epoch_num) == (at_once.step_num, at_once.epoch_num) == (10, 2)


def test_steps_are_those_of_epochs_bit_for_bit() -> None:
    by_steps, by_epochs = manager(epochs=3), manager(epochs=3)
    by_steps.train_steps(12)
    by_epochs.train()

    assert torch.equal(weights(by_steps), weights(by_epochs))


def test_an_epoch_that_was_left_unfinished_is_the_first_of_the_next_call_bit_for_bit() -> None:
    in_turn, at_once = manager(epochs=3), manager(epochs=3)
    in_turn.train_steps(5)
    in_turn.train()
    at_once.train()

    assert in_turn.epoch_num == 3
    assert torch.equal(weights(in_turn), weights(at_once))


def test_an_evaluation_between_does_not_move_the_data() -> None:
    in_turn, at_once = manager(), manager()
    in_turn.train_steps(5)
    in_turn.eval()
    in_turn.train_steps(5)
    at_once.train_steps(10)

    assert torch.equal(weights(in_turn), weights(at_once))


@pytest.mark.parametrize("held", [False, True])
@pytest.mark.parametrize("data", [make_batches(4), Unsized()])
def test_steps_continue_where_the_last_call_left_the_data(data: Any, held: bool) -> None:
    steps = Steps()
    tm = tiny_manager(steps, train_data=data)
    if held:
        with tm.run():
            tm.train_steps(3)
            tm.train_steps(3)
    else:
        tm.train_steps(3)
        tm.train_steps(3)

    assert steps.seen == [0, 1, 2, 3, 0, 1]


def test_epochs_end_and_begin_on_the_way_and_are_evaluated() -> None:
    steps, recorder = Steps(), Recorder()
    tm = tiny_manager(steps, recorder)
    tm.train_steps(7)

    assert (tm.step_num, tm.epoch_num) == (7, 2)
    assert steps.evals == [0, 3, 6]
    assert recorder.stages.count("train_step_epoch") == 3


def test_an_epoch_that_ends_with_the_steps_is_over() -> None:
    steps = Steps()
    tm = tiny_manager(steps)
    tm.train_steps(3)

    assert (tm.epoch_num, steps.evals) == (1, [0, 3])


def test_data_that_is_cut_into_epochs_continues_too() -> None:
    steps = Steps()
    tm = tiny_manager(steps, train_data=make_batches(4), steps_per_epoch=3)
    tm.train_steps(2)
    tm.train_steps(3)

    assert (steps.seen, tm.epoch_num) == ([0, 1, 2, 3, 0], 1)


def test_data_without_an_end_can_be_trained_on_by_steps() -> None:
    steps = Steps()
    tm = tiny_manager(steps, train_data=Endless(make_batches(4)))
    tm.train_steps(7)

    assert (tm.step_num, tm.epoch_num, steps.evals) == (7, 0, [0])


def test_no_steps_train_nothing() -> None:
    tm = tiny_manager()
    tm.train_steps(0)

    assert (tm.step_num, tm.epoch_num) == (0, 0)


def test_skipped_batches_are_not_among_the_steps() -> None:
    tm = tiny_manager(
        At("post_train_model_forward", lambda fixtures: skip_batch() if len(fixtures["inputs"]) == 8 else None)
    )
    tm.train_steps(4)

    assert (tm.step_num, tm.epoch_num) == (4, 1)


@pytest.mark.parametrize(
    "skip", [At("pre_train_step_batch", skip_batch), At("pre_train_step_epoch", skip_stage)], ids=["batches", "epochs"]
)
def test_three_epochs_without_a_step_are_an_error_where_steps_are_counted(skip: Extension) -> None:
    tm = tiny_manager(skip)
    with pytest.raises(StageError) as caught:
        tm.train_steps(1)

    assert str(caught.value).splitlines()[0] == (
        "3 epochs went by without a step, so the steps asked for would never be done"
    )
    assert str(caught.value).splitlines()[-1] == "  does a hook skip every batch, or every epoch?"
    assert tm.fixtures.path == ()


def test_a_stop_ends_the_steps_and_drops_the_rest_of_the_epoch() -> None:
    steps = Steps()
    tm = tiny_manager(
        steps,
        At(
            "post_train_step_batch",
            lambda train_manager, step_num: train_manager.stop("enough") if step_num == 2 else None,
        ),
        train_data=make_batches(4),
    )
    result = tm.train_steps(9)
    tm.train_steps(2)

    assert (result.stopped, result.steps) == ("enough", 2)
    assert steps.seen == [0, 1, 0, 1]


def test_an_error_drops_the_rest_of_the_epoch() -> None:
    def fail_at_two(step_num: int) -> None:
        if step_num == 2:
            raise ValueError("in a hook")

    steps = Steps()
    tm = tiny_manager(steps, At("post_train_step_batch", fail_at_two), train_data=make_batches(4))
    with pytest.raises(ValueError, match="in a hook"):
        tm.train_steps(3)
    tm.train_steps(2)

    assert steps.seen[-2:] == [0, 1]


def test_other_data_is_begun_from_its_start() -> None:
    steps = Steps()
    tm = tiny_manager(steps, train_data=make_batches(4))
    tm.train_steps(2)
    tm.train_data = make_batches(4)
    tm.train_steps(1)

    assert steps.seen == [0, 1, 0]


@pytest.mark.parametrize("wrong", [-1, 1.5, True, "2"])
def test_a_number_of_steps_that_is_none_is_refused(wrong: Any) -> None:
    with pytest.raises(InputError) as caught:
        tiny_manager().train_steps(wrong)

    assert str(caught.value) == f"n must be a whole number of at least 0, but is {wrong!r}"


# ---- train_epoch -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("held", [False, True])
def test_epochs_of_a_loop_of_ones_own_are_those_of_train_bit_for_bit(held: bool) -> None:
    own, whole = manager(epochs=3), manager(epochs=3)
    if held:
        with own.run():
            for _ in range(3):
                own.train_epoch()
    else:
        for _ in range(3):
            own.train_epoch()
    whole.train()

    assert torch.equal(weights(own), weights(whole))


def test_a_loop_of_ones_own_evaluates_when_it_likes() -> None:
    steps = Steps()
    tm = tiny_manager(steps)
    with tm.run():
        for epoch in range(4):
            tm.train_epoch()
            if epoch % 2:
                tm.eval()

    assert steps.evals == [6, 12]


def test_an_evaluation_that_a_hook_asks_for_is_done_in_such_an_epoch() -> None:
    steps = Steps()
    soon = At(
        "post_train_step_batch", lambda train_manager, step_num: train_manager.eval_soon() if step_num == 1 else None
    )
    tiny_manager(steps, soon).train_epoch()

    assert steps.evals == [1]
