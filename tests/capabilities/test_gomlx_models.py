"""The rows of GoMLX's train package (G) of losses from inside a model, and of what is done to a weight."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from train_manager import Extension, InputError, TrainManager
from train_manager.extensions import Constrain, Metrics
from train_manager.loop.losses import Losses, add_loss
from train_manager.model.constraints import max_norm, non_negative, row_norms
from train_manager.testing import tiny_manager


class Experts(nn.Linear):
    """Adds two losses of its own to whatever it is trained for."""

    def forward(self, inputs: Tensor) -> Tensor:
        outputs = super().forward(inputs)
        add_loss(outputs.square().sum(dim=1), "size")
        add_loss(torch.tensor(0.5))
        return outputs


class LossesOfSteps(Extension):
    """Notes what was added in each training step, and the loss that is trained on."""

    def __init__(self) -> None:
        self.added: list[dict[str, float]] = []
        self.totals: list[float] = []

    def post_train_step_batch(self, losses: Mapping[str, Tensor], loss: Tensor) -> None:
        self.added.append({name: value.item() for name, value in losses.items()})
        self.totals.append(loss.item())


def experts(*extensions: Extension, **options: Any) -> TrainManager:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = Experts(2, 2)
    return tiny_manager(*extensions, model=model, **options)


def test_g03_what_a_model_adds_in_its_forward_is_trained_on_with_the_loss() -> None:
    watch = LossesOfSteps()
    tm = experts(watch, eval_data=None)
    data: Any = tm.train_data
    inputs, targets = data[0]
    outputs = F.linear(inputs, tm.model.weight, tm.model.bias)
    by_hand = F.cross_entropy(outputs, targets) + outputs.square().sum(dim=1).mean() + 0.5
    tm.train()

    assert watch.totals[0] == pytest.approx(by_hand.item())


def test_g04_an_added_loss_with_a_value_for_each_example_is_reduced_to_its_mean() -> None:
    with Losses() as losses:
        add_loss(torch.tensor([1.0, 2.0, 6.0]))
    assert losses.total(None).item() == 3.0


def test_g05_a_model_that_adds_its_losses_needs_no_loss_function() -> None:
    tm = experts(loss=None, epochs=5)
    before = tm.eval()["valid"]["loss"]
    tm.train()

    assert tm.eval()["valid"]["loss"] - 0.5 < (before - 0.5) / 2


def test_g06_the_fixture_losses_has_each_by_name_and_nothing_where_none_was_added() -> None:
    added, none = LossesOfSteps(), LossesOfSteps()
    experts(added).train()
    tiny_manager(none).train()

    assert [list(losses) for losses in added.added] == [["size", "added"]] * 3
    assert none.added == [{}, {}, {}]


def test_g07_a_constraint_holds_after_every_training_step_and_is_not_applied_in_evaluation() -> None:
    longest: list[float] = []
    applied: list[str] = []

    class Steps(Extension):
        def post_train_step_batch(self, train_manager: TrainManager) -> None:
            longest.append(row_norms(train_manager.model.get_parameter("0.weight")).max().item())

    def short(weight: Tensor) -> Tensor:
        applied.append("step")
        return max_norm(weight, limit=0.5)

    tm = tiny_manager(Constrain(short, "0"), Steps(), epochs=4)
    tm.eval()
    assert applied == []
    tm.train()
    assert len(longest) == len(applied) == 12
    assert max(longest) < 0.5 + 1e-6


def test_g08_a_weight_has_one_constraint_and_a_second_is_refused() -> None:
    tiny_manager(Constrain(max_norm, "0"), Constrain(non_negative, "2")).train()
    with pytest.raises(InputError, match=r"two Constrain extensions, .*, have the weight '0\.weight'"):
        tiny_manager(Constrain(max_norm, "0"), Constrain(non_negative, "[0-2]")).train()


def test_g09_the_loss_of_a_step_is_that_before_the_constraint_and_its_metrics_are_taken_after_it() -> None:
    def size(prediction: Tensor, train_manager: TrainManager) -> Tensor:
        weight: Tensor = train_manager.model.get_parameter("0.weight")
        return weight.abs().sum()

    losses: list[list[float]] = []
    metrics = Metrics(train={"size": size})
    for extensions in ([Constrain(torch.zeros_like, "0"), metrics], []):
        losses.append([])
        note = Extension.of(post_train_step_batch=lambda loss: losses[-1].append(loss.item()))
        tiny_manager(*extensions, note).train()
    constrained, plain = losses

    assert constrained[0] == plain[0]
    assert constrained[1] != plain[1]
    assert metrics.training["size"] == 0.0
