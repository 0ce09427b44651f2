"""A model with faults to plant, and what `diagnose` says of it."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Adam

from train_manager import (
    diagnose,
)
from train_manager.telling.findings import Findings
from train_manager.testing import tiny_manager

X, Y = tiny_manager().train_data[0]  # type: ignore[index]


class Model(nn.Module):
    """Two layers, and what a test does with the hidden layer and with the outputs."""

    def __init__(self, outputs: int = 2, hidden: Any = None, last: Any = None) -> None:
        super().__init__()
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            self.body, self.head = nn.Linear(2, 8), nn.Linear(8, outputs)
        self.hidden, self.last = hidden or (lambda x: x), last or (lambda x: x)

    def forward(self, inputs: Tensor) -> Tensor:
        return self.last(self.head(self.hidden(self.body(inputs).tanh())))  # type: ignore[no-any-return]


def squared(prediction: Tensor, targets: Tensor) -> Tensor:
    return (prediction - targets).square().mean()


def asked(check: str, model: nn.Module | None = None, **options: Any) -> Findings:
    """What one check tells of a tiny training."""
    given: dict[str, Any] = {"model": model or Model(), "eval_data": None, **options}
    return diagnose(tiny_manager(**given), [check], quiet=True)


def regression(model: nn.Module | None = None, **options: Any) -> dict[str, Any]:
    """The options of a training on the sum of two numbers."""
    x = 2 * X - 1
    given = {"model": model or Model(1), "loss": squared, "train_data": [(x, x.sum(1, keepdim=True))]}
    return {**given, "optimizer": lambda p: Adam(p, 0.03), **options}


def list_findings(found: Findings) -> list[str]:
    """What was found, a line each."""
    return [f"{one.level}: {one.what}" + (f" @ {one.where}" if one.where else "") for one in found]


def covered(found: Findings, check: str) -> str:
    """How far a check has looked."""
    return ", ".join(one.text for one in found.covered if one.check == check)


def not_looked_at(found: Findings) -> list[str]:
    assert not found.is_clean
    return [f"{one.check}: {one.text}" for one in found.covered if not one.could_look]
