"""A model with faults to plant, and what `diagnose` says of it."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Adam

from train_manager import InMemory, TrainManager, diagnose
from train_manager.extensions import EMA, Accumulate, Metrics
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


def said(check: str, model: nn.Module | None = None, **options: Any) -> list[str]:
    """What one check finds in a tiny training, a line each."""
    return list_findings(asked(check, model, **options))


def covered(found: Findings, check: str) -> str:
    """How far a check has looked."""
    return ", ".join(one.text for one in found.covered if one.check == check)


def not_looked_at(found: Findings) -> list[str]:
    assert not found.is_clean
    return [f"{one.check}: {one.text}" for one in found.covered if not one.could_look]


def noisy(**options: Any) -> TrainManager:
    """A training with dropout, running statistics, an average, windows, and rows in an order that is drawn."""
    torch.manual_seed(1)
    model = nn.Sequential(nn.Linear(2, 8), nn.BatchNorm1d(8), nn.Dropout(0.3), nn.Linear(8, 2))
    data = InMemory(torch.rand(40, 2), torch.randint(2, (40,)), batch_size=16, shuffle=True)
    given = {"model": model, "optimizer": Adam, "train_data": data, "eval_data": {"valid": [(X, Y)]}, "epochs": 2}
    return tiny_manager(Metrics(), EMA(0.9), Accumulate(2), **{**given, **options})


def result_of(tm: TrainManager) -> dict[str, Any]:
    """All that the training has come to, to the bit."""
    state = tm.state_dict()
    seconds = {"seconds": 0}
    rows = [{**row, **seconds} for row in tm.history.epochs]
    return {
        **{name: state[name] for name in ("model", "optimizers", "extensions", "counts", "random", "findings")},
        "history": [rows, tm.history.evaluations],
        "modes": [module.training for module in tm.model.modules()],
        "gradients": [parameter.grad for parameter in tm.model.parameters()],
    }
