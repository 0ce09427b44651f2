"""Rows of the capabilities that come from JumpML (J): J03, objectives at several layers."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from train_manager.losses import WeightedLosses
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
