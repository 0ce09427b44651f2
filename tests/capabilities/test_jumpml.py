"""Rows J03, J04, J23, J31 and J32 of the capabilities: what a learner made of files has, in this library's words."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from train_manager import Extension, TrainManager
from train_manager.extensions import EMA
from train_manager.loop.losses import WeightedLosses, add_loss
from train_manager.testing import tiny_manager


class Layers(nn.Module):
    """Returns what its hidden layer makes, too, and a guess made of it."""

    def __init__(self) -> None:
        super().__init__()
        self.hidden, self.guess, self.output = nn.Linear(2, 8), nn.Linear(8, 2), nn.Linear(8, 2)

    def forward(self, inputs: Tensor) -> dict[str, Tensor]:
        hidden = self.hidden(inputs).relu()
        return {"sparsity": hidden, "guess": self.guess(hidden), "output": self.output(hidden)}


def activity(weight: float) -> float:
    """How active the hidden layer is after a training in which it has an objective of this weight."""
    torch.manual_seed(0)
    loss = WeightedLosses(
        {
            "output": F.cross_entropy,
            "guess": (F.cross_entropy, 0.3),
            "sparsity": (lambda hidden, targets: hidden.abs().mean(), weight),
        }
    )
    tm = tiny_manager(model=Layers(), loss=loss, epochs=10)
    tm.train()
    return tm.model(torch.ones(1, 2))["sparsity"].mean().item()  # type: ignore[no-any-return]


def test_j03_layers_have_objectives_of_their_own_with_weights_that_can_be_set() -> None:
    assert activity(weight=2.0) < 0.3 * activity(weight=0.0)


class Adding(nn.Linear):
    """Pulls its outputs to a number of its own, and keeps its weights small."""

    def forward(self, inputs: Tensor) -> Tensor:
        outputs = super().forward(inputs)
        add_loss((outputs - 3).square(), "pull")
        add_loss(self.weight.square().sum(), "size")
        return outputs


def test_j04_a_model_brings_objectives_of_its_own_and_they_are_summed() -> None:
    tm = tiny_manager(model=Adding(2, 2), optimizer=lambda parameters: torch.optim.SGD(parameters, lr=0.05), epochs=5)
    model: Any = tm.model
    data: Any = tm.eval_data["valid"]
    inputs, targets = (torch.cat(parts) for parts in zip(*data, strict=True))
    outputs = F.linear(inputs, model.weight, model.bias)
    before = F.cross_entropy(outputs, targets) + (outputs - 3).square().mean() + model.weight.square().sum()

    assert tm.eval()["valid"]["loss"] == pytest.approx(before.item(), rel=1e-5)
    tm.train()
    assert tm.eval()["valid"]["loss"] < before / 2


def weights(tm: TrainManager) -> list[Tensor]:
    return [parameter.detach().clone() for parameter in tm.model.parameters()]


def test_j23_averaged_weights_are_those_of_the_formula_evaluated_and_the_trained_ones_restored() -> None:
    trained: list[list[Tensor]] = []
    evaluated: list[list[Tensor]] = []

    class Weights(Extension):
        def post_train_step_batch(self, train_manager: TrainManager) -> None:
            trained.append(weights(train_manager))

        def pre_eval_step_batch(self, train_manager: TrainManager) -> None:
            evaluated.append(weights(train_manager))

    tm = tiny_manager(EMA(decay=0.8), Weights(), epochs=4)
    tm.train()

    average = trained[0]
    for step in trained[1:]:
        average = [0.8 * old + 0.2 * new for old, new in zip(average, step, strict=True)]
    for found, expected in zip(evaluated[-1], average, strict=True):
        assert torch.allclose(found, expected, atol=1e-6)
    for left, last in zip(weights(tm), trained[-1], strict=True):
        assert left.equal(last)
