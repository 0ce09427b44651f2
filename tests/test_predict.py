"""Predictions: what they are joined to, and that a training does not notice them."""

from __future__ import annotations

import random
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tests.support.training import At, Values, make_batches, modes, shuffled, skip_stage, weights
from train_manager import Extension, modifies
from train_manager.errors import StageError
from train_manager.testing import tiny_manager


def test_predictions_of_all_batches_are_one_tensor() -> None:
    tm = tiny_manager()
    batches = make_batches(3)

    assert torch.equal(tm.predict(batches), torch.cat([tm.model(x) for x, _ in batches]).detach())


def test_a_tensor_is_one_batch() -> None:
    tm = tiny_manager()
    inputs = torch.rand(5, 2)

    assert torch.equal(tm.predict(inputs), tm.model(inputs).detach())


def test_batches_may_be_inputs_alone() -> None:
    tm = tiny_manager()
    inputs = torch.rand(2, 4, 2)

    assert tm.predict(list(inputs)).shape == (8, 2)


def test_predictions_that_cannot_be_joined_are_a_list() -> None:
    class Sequences(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(2, 2)

        def forward(self, inputs: Tensor) -> Any:
            return self.layer(inputs)

    tm = tiny_manager(model=Sequences())
    found = tm.predict([torch.rand(1, 3, 2), torch.rand(1, 4, 2)])

    assert [part.shape for part in found] == [(1, 3, 2), (1, 4, 2)]


def test_predictions_are_made_in_eval_mode_without_gradients() -> None:
    seen: list[tuple[bool, bool]] = []
    tm = tiny_manager(
        At("pre_predict_step_batch", lambda model: seen.append((model.training, torch.is_grad_enabled())))
    )
    before = modes(tm.model)
    found = tm.predict(torch.rand(2, 2))

    assert seen == [(False, False)]
    assert not found.requires_grad
    assert modes(tm.model) == before


def test_predicting_leaves_random_states_as_they_were() -> None:
    tm = tiny_manager()
    torch.manual_seed(0)
    random.seed(0)
    before = torch.get_rng_state(), random.getstate()
    tm.predict(shuffled())

    assert torch.equal(torch.get_rng_state(), before[0])
    assert random.getstate() == before[1]


def test_predicting_between_two_calls_does_not_change_the_training() -> None:
    one, other = tiny_manager(), tiny_manager()
    with one.run():
        one.train_steps(2)
        one.predict(make_batches(2))
        one.train_steps(2)
    other.train_steps(4)

    assert torch.equal(weights(one.model), weights(other.model))


def test_hooks_may_change_a_prediction_and_all_of_them() -> None:
    class Doubled(Extension):
        @modifies("prediction")
        def post_predict_step_batch(self, prediction: Tensor) -> Tensor:
            return 2 * prediction

        @modifies("predictions")
        def post_predict(self, predictions: Tensor) -> Tensor:
            return predictions + 1

    tm = tiny_manager(Doubled())
    inputs = torch.rand(3, 2)

    assert torch.equal(tm.predict(inputs), 2 * tm.model(inputs).detach() + 1)


def test_a_batch_whose_stage_is_skipped_has_no_prediction() -> None:
    counted = iter(range(2))
    tm = tiny_manager(At("pre_predict_step_batch", lambda: skip_stage() if next(counted) == 0 else None))

    assert tm.predict(make_batches(2)).shape == (4, 2)


def test_a_prediction_goes_through_what_is_called_in_place_of_the_model() -> None:
    tm = tiny_manager()
    tm.called_model = nn.Sequential(tm.model, nn.Softmax(dim=1))

    assert torch.allclose(tm.predict(torch.rand(3, 2)).sum(dim=1), torch.ones(3))


def test_predictions_are_refused_while_a_batch_is_alive() -> None:
    tm = tiny_manager()
    with tm.run(), tm.staged("train_step_batch"):
        with pytest.raises(StageError) as caught:
            tm.predict(torch.rand(1, 2))

    assert str(caught.value).splitlines()[0] == "predict() cannot be called inside stage 'train_step_batch'"


def test_nothing_is_counted_or_evaluated() -> None:
    evals = Values("pre_eval", "step_num")
    tm = tiny_manager(evals)
    tm.predict(torch.rand(1, 2))

    assert evals.seen == []
    assert (tm.epoch_num, tm.step_num, tm.samples_seen) == (0, 0, 0)


def test_each_call_may_have_data_of_another_structure() -> None:
    tm = tiny_manager()
    with tm.run():
        one = tm.predict([(torch.ones(2, 2), torch.zeros(2))])
        other = tm.predict([torch.ones(2, 2)])

    assert one.equal(other)
