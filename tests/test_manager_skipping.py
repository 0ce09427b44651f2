"""Stages and batches that hooks skip: what is left out, and what is as ever."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from tests.support.resuming import round_trip
from tests.support.training import At, make_batches, skip_batch, skip_stage, weights
from train_manager import Extension, SkipBatch, SkipStage, always
from train_manager.errors import FixtureNotFound
from train_manager.testing import tiny_manager

TRAINING_STAGES = ["train_step_batch", "train_model_forward", "train_loss_forward"]
TRAINING_STAGES += ["train_backward", "train_optimizer_step"]


@always
def fail_always() -> None:
    raise ValueError("in an always hook")


class SkipAndNote(Extension):
    """Skips one stage, the first time it opens or each time; notes what else it sees of it."""

    def __init__(self, stage: str) -> None:
        self.stage = stage
        self.notes: list[str] = []
        self.inner: list[str] = []
        self.is_skipping = True
        setattr(self, f"pre_{stage}", self.skip)

    def skip(self) -> None:
        if self.is_skipping:
            raise SkipStage

    @always
    def post_stage(self, stage: Any, exc_type: type[BaseException] | None) -> None:
        if stage.name == self.stage:
            self.notes.append(exc_type.__name__ if exc_type else "ran")
        elif self.stage in stage.path:
            self.inner.append(stage.name)


SKIPPABLE = ["run", "load_checkpoint", "train", "eval", "eval_step_epoch", "train_step_epoch", "train_step_batch"]


@pytest.mark.parametrize("stage", [*SKIPPABLE, "train_backward", "train_optimizer_step"])
def test_a_stage_of_the_loop_can_be_skipped(stage: str) -> None:
    skip = SkipAndNote(stage)
    tm = tiny_manager(skip, epochs=2)
    tm.train()

    assert set(skip.notes) == {"SkipStage"}
    assert skip.inner == []
    assert tm.fixtures.path == ()


@pytest.mark.parametrize("stage", SKIPPABLE)
def test_the_training_is_as_ever_once_nothing_is_skipped_any_more(stage: str) -> None:
    skip = SkipAndNote(stage)
    tm, other = tiny_manager(skip), tiny_manager()
    tm.train_epochs(0)
    skip.is_skipping = False
    tm.train_epochs(1)
    other.train_epochs(1)

    assert torch.equal(weights(tm.model), weights(other.model))


def test_skipping_evaluation_batches_leaves_them_out_of_the_mean() -> None:
    first = At("pre_eval_step_batch", lambda batch: skip_stage() if len(batch[0]) == 3 else None)
    tm = tiny_manager(first, eval_data=[*make_batches(1, size=3), *make_batches(1, size=4)])
    alone = tiny_manager(eval_data=make_batches(1, size=4))

    assert tm.eval() == alone.eval()


def test_a_skipped_evaluation_set_is_left_out_of_the_results() -> None:
    skip = At("pre_eval_step_epoch", lambda datasource_name: skip_stage() if datasource_name == "a" else None)
    tm = tiny_manager(skip, eval_data={"a": make_batches(1), "b": make_batches(1)})

    assert list(tm.eval()) == ["b"]


@pytest.mark.parametrize("stage", ["run", "eval"])
def test_an_evaluation_that_is_skipped_has_no_results(stage: str) -> None:
    assert tiny_manager(At(f"pre_{stage}", skip_stage)).eval() == {}


@pytest.mark.parametrize("stage", ["train_model_forward", "train_loss_forward"])
def test_a_skipped_forward_stage_leaves_what_comes_after_without_its_fixture(stage: str) -> None:
    tm = tiny_manager(At(f"pre_{stage}", skip_stage))
    with pytest.raises(FixtureNotFound, match=r"'prediction'|'loss'"):
        tm.train()


def test_a_skipped_epoch_is_not_counted_and_ends() -> None:
    starts: list[int] = []

    def note_and_skip(epoch_num: int) -> None:
        starts.append(epoch_num)
        raise SkipStage

    tm = tiny_manager(At("pre_train_step_epoch", note_and_skip), epochs=3)
    tm.train()

    assert (starts, tm.epoch_num) == ([0, 0, 0], 0)


def test_a_wish_to_skip_outside_a_pre_hook_comes_out() -> None:
    tm = tiny_manager(At("post_train_step_batch", skip_stage))
    with pytest.raises(SkipStage):
        tm.train()

    assert tm.fixtures.path == ()


def test_the_block_of_a_run_cannot_be_skipped() -> None:
    with pytest.raises(SkipStage), tiny_manager(At("pre_run", skip_stage)).run():
        pytest.fail("the block was entered")


@pytest.mark.parametrize("stage", TRAINING_STAGES)
@pytest.mark.parametrize("kind", ["pre", "post"])
def test_a_batch_can_be_skipped_from_any_stage_in_it(kind: str, stage: str) -> None:
    tm = tiny_manager(At(f"{kind}_{stage}", skip_batch), epochs=2)
    tm.train()

    assert tm.epoch_num == 2
    assert all(parameter.grad is None for parameter in tm.model.parameters())


@pytest.mark.parametrize("hook", ["pre_train_step_batch", "post_train_loss_forward", "post_train_backward"])
def test_a_model_whose_batches_are_all_skipped_learns_nothing(hook: str) -> None:
    tm = tiny_manager(At(hook, skip_batch))
    before = weights(tm.model)
    tm.train()

    assert torch.equal(weights(tm.model), before)
    assert (tm.step_num, tm.update_num) == (0, 0)


def test_a_batch_skipped_after_backward_leaves_no_gradients_to_the_next() -> None:
    skip_first = At("post_train_backward", lambda fixtures: skip_batch() if fixtures["batch"] is batches[0] else None)
    batches = make_batches(3)
    skipping, without = tiny_manager(skip_first, train_data=batches), tiny_manager(train_data=batches[1:])
    skipping.train()
    without.train()

    assert torch.equal(weights(skipping.model), weights(without.model))


def test_a_batch_skipped_before_backward_leaves_gathered_gradients_alone() -> None:
    batches = make_batches(3)
    gather = At("pre_train_optimizer_step", lambda last_batch: None if last_batch else skip_stage())
    skip_second = At(
        "post_train_loss_forward", lambda fixtures: skip_batch() if fixtures["batch"] is batches[1] else None
    )
    skipping = tiny_manager(gather, skip_second, train_data=batches)
    without = tiny_manager(gather, train_data=[batches[0], batches[2]])
    skipping.train()
    without.train()

    assert torch.equal(weights(skipping.model), weights(without.model))


def test_a_wish_to_skip_after_the_step_leaves_gathered_gradients_alone() -> None:
    """The batch is trained and counted by then."""
    batches = make_batches(3)
    gather = At("pre_train_optimizer_step", lambda last_batch: None if last_batch else skip_stage())
    late = At("post_train_step_batch", skip_batch)
    skipping, without = tiny_manager(gather, late, train_data=batches), tiny_manager(gather, train_data=batches)
    skipping.train()
    without.train()

    assert skipping.step_num == 3
    assert torch.equal(weights(skipping.model), weights(without.model))


def test_always_hooks_run_while_a_batch_is_skipped() -> None:
    class Note(Extension):
        parameters: list[object] = []

        @always
        def post_train_step_batch(self, exc_type: object) -> None:
            self.parameters.append(exc_type)

    tiny_manager(Note(), At("pre_train_backward", skip_batch)).train()

    assert Note.parameters == [SkipBatch] * 3


@pytest.mark.parametrize("stage", ["train_backward", "train_step_batch"])
def test_an_error_in_an_always_hook_while_a_batch_is_skipped_is_not_lost(stage: str) -> None:
    tm = tiny_manager(At("pre_train_backward", skip_batch), At(f"post_{stage}", fail_always))
    with pytest.raises(ValueError, match="in an always hook"):
        tm.train()


def test_a_wish_to_skip_a_batch_in_evaluation_comes_out() -> None:
    with pytest.raises(SkipBatch):
        tiny_manager(At("pre_eval_step_batch", skip_batch)).eval()


class SkipsUpTo(Extension):
    """Skip the batches up to a number, by the exception that is given."""

    def __init__(self, number: int, skip: type[Exception] = SkipBatch) -> None:
        self.number, self.skip = number, skip

    def pre_train_step_batch(self, batch_num: int) -> None:
        if batch_num <= self.number:
            raise self.skip


@pytest.mark.parametrize("skip", [SkipBatch, SkipStage])
def test_an_epoch_of_which_more_than_half_was_skipped_is_noted_once(skip: type[Exception]) -> None:
    tm = tiny_manager(SkipsUpTo(2, skip), epochs=2)
    tm.train()

    assert [(one.check, one.level, one.what, one.numbers) for one in tm.findings] == [
        (
            "skipped batches",
            "note",
            "hooks have skipped more than half of the batches of an epoch (SkipBatch)",
            {"epoch": 1, "skipped": 2, "batches": 3},
        )
    ]


def test_half_of_an_epoch_may_be_skipped() -> None:
    tm = tiny_manager(SkipsUpTo(2), train_data=make_batches(4))
    tm.train()

    assert tm.findings == []


def test_skipped_batches_are_counted_over_the_calls_and_the_resumes_of_an_epoch() -> None:
    tm = tiny_manager(SkipsUpTo(3), train_data=make_batches(5))
    tm.train_steps(1)
    again = tiny_manager(SkipsUpTo(3), train_data=make_batches(5))
    again.load_state_dict(round_trip(tm.state_dict()))
    again.train_steps(1)
    again.train_steps(1)  # of the next epoch, with three skipped batches before it

    assert [one.numbers for one in again.findings] == [{"epoch": 1, "skipped": 3, "batches": 5}]


def test_skipped_batches_of_a_loop_of_ones_own_are_noted_as_its_epoch_ends() -> None:
    tm = tiny_manager(SkipsUpTo(2))
    with tm.run():
        for batch in make_batches(3):
            tm.train_on_batch(batch)
        tm.end_epoch()

    assert [one.numbers for one in tm.findings] == [{"epoch": 1, "skipped": 2, "batches": 3}]
