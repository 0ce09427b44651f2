"""What hooks see of a training step and can change in it, and that their mistakes are told before the first step."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from tests.support.training import At, Values, at_rate, weights
from train_manager import SkipStage
from train_manager.errors import CheckError
from train_manager.telling.errors import FixtureExists
from train_manager.testing import Recorder, tiny_manager


def test_the_backward_loss_is_the_loss_until_a_hook_changes_it() -> None:
    def halve(fixtures: Any) -> None:
        fixtures.modify("backward_loss", fixtures["backward_loss"] / 2)

    losses = Values("post_train_backward", "loss", "backward_loss")
    tiny_manager(At("pre_train_backward", halve), losses).train()

    assert all(torch.equal(loss / 2, backward_loss) for loss, backward_loss in losses.seen)


def test_what_a_hook_makes_of_the_backward_loss_is_what_is_learnt_from() -> None:
    def double(fixtures: Any) -> None:
        fixtures.modify("backward_loss", 2 * fixtures["backward_loss"])

    doubled, twice_the_rate = tiny_manager(At("pre_train_backward", double)), tiny_manager(optimizer=at_rate(1.0))
    doubled.train()
    twice_the_rate.train()

    assert torch.equal(weights(doubled.model), weights(twice_the_rate.model))


def test_what_a_hook_makes_of_the_batch_is_what_is_trained_on() -> None:
    def only_first(fixtures: Any) -> None:
        inputs, targets = fixtures["batch"]
        fixtures.modify("batch", (inputs[:1], targets[:1]))

    seen = Values("post_train_step_batch", "inputs", "targets", "prediction", "true_batch_size")
    tiny_manager(At("pre_train_step_batch", only_first), seen).train()

    assert [(len(x), len(y), len(p), size) for x, y, p, size in seen.seen] == [(1, 1, 1, 1)] * 3


def test_what_a_hook_makes_of_the_inputs_is_what_the_model_gets() -> None:
    def zero(fixtures: Any) -> None:
        fixtures.modify("inputs", torch.zeros_like(fixtures["inputs"]))

    predictions = Values("post_train_step_batch", "prediction")
    tiny_manager(At("pre_train_model_forward", zero), predictions).train()

    assert all((prediction == prediction[0]).all() for prediction in predictions.seen)


def test_a_hook_that_fills_in_the_prediction_may_skip_the_model() -> None:
    def constant(fixtures: Any, inputs: Tensor) -> None:
        logits = torch.zeros(len(inputs), 2, requires_grad=True)
        fixtures.define("prediction", logits, stage="train_step_batch")
        raise SkipStage

    losses = Values("post_train_step_batch", "loss")
    with pytest.warns(UserWarning, match="no parameter of optimizer 'optimizer' has a gradient") as caught:
        tiny_manager(At("pre_train_model_forward", constant), losses).train()

    assert [loss.item() for loss in losses.seen] == [pytest.approx(0.6931472)] * 3
    assert caught[0].filename == __file__  # not the file of the loop that is the caller of the check


def test_all_mistakes_in_hooks_are_told_before_the_first_step() -> None:
    recorder = Recorder()
    tm = tiny_manager(
        recorder, At("post_train_step_bacth", lambda: None), At("post_train_step_batch", lambda epoch_nun: None)
    )
    with pytest.raises(CheckError, match=r"^2 mistakes") as caught:
        tm.train()

    assert recorder.stages == []
    assert [mistake.nearest[0] for mistake in caught.value.mistakes] == ["train_step_batch", "epoch_num"]


def test_nothing_in_the_loop_is_hidden_from_the_check() -> None:
    """What it cannot read it lets pass, so there must be nothing."""
    assert tiny_manager().check() == []


def test_the_manager_is_a_fixture_by_two_names() -> None:
    seen: list[tuple[object, object]] = []
    tm = tiny_manager(At("pre_run", lambda extensible, train_manager: seen.append((extensible, train_manager))))
    tm.eval()

    assert seen == [(tm, tm)]


def test_a_hook_may_name_a_fixture_that_code_around_a_held_run_defines() -> None:
    seen: list[float] = []
    tm = tiny_manager()
    tm.add_extension(post_train_step_batch=lambda weight: seen.append(weight))

    with tm.run():
        tm.fixtures["weight"] = 0.5
        tm.train_steps(2)

    assert seen == [0.5, 0.5]


def test_hooks_read_the_counts_where_they_live() -> None:
    seen: list[tuple[Any, ...]] = []
    tm = tiny_manager(At("post_train_step_batch", lambda step_num, end_step: seen.append((step_num, end_step))))
    with tm.run():
        tm.train_steps(1)
        tm.step_num = 7
        assert tm.fixtures["step_num"] == 7
        tm.train_steps(1)

    assert seen == [(1, 1), (8, 8)]


def test_a_device_that_is_set_in_a_run_is_the_fixture_at_once() -> None:
    tm = tiny_manager(device="cpu")
    with tm.run():
        tm.device = torch.device("meta")
        assert tm.fixtures["device"] == torch.device("meta")
        tm.device = torch.device("cpu")


@pytest.mark.parametrize(
    "name", ["model", "device", "phase_name", "epoch_num", "step_num", "update_num", "start_step", "end_step"]
)
def test_what_the_loop_keeps_itself_cannot_be_modified_as_a_fixture(name: str) -> None:
    tm = tiny_manager(device="cpu")
    with tm.run(), pytest.raises(FixtureExists, match=f"modifies '{name}', which is an attribute of the train_manager"):
        tm.fixtures.modify(name, None)
