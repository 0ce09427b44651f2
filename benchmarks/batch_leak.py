"""What the check for batch leaks costs, in training steps of the same model and batch.

python -m benchmarks batch_leak
"""

from __future__ import annotations

from collections.abc import Callable
from time import process_time
from typing import Any, Final

import torch
from torch import Tensor, nn

from benchmarks.measure import interleaved, ratios
from benchmarks.section import Claim, Section, table
from train_manager.checks.batch_leak import check_batch_leak

STEPS: Final = 5
QUICK: dict[str, Any] = {"rounds": 1, "width": 16, "examples": 8}

TEXT: Final = """\
The check of a batch of {examples} examples with one leaf, as many times a training step of the same model with Adam, by
CPU time. A clean batch takes 27 runs, most of them with their way back; where a leak is found, the module that lets the
examples mix is named in it.

{table}
"""


class Mixing(nn.Module):
    """Adds a tenth of the batch's mean."""

    def forward(self, x: Tensor) -> Tensor:
        return x + 0.1 * x.mean(0)


class MixingBack(nn.Module):
    """The same in the gradient alone."""

    def forward(self, x: Tensor) -> Tensor:
        mean = 0.1 * x.square().mean(0)
        return x + (mean - mean.detach())


def mlp(width: int, part: nn.Module) -> nn.Module:
    """Three layers, with a part before the last."""
    layers = [nn.Linear(32, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU()]
    return nn.Sequential(*layers, part, nn.Linear(width, 10))


def section(rounds: int = 7, width: int = 512, examples: int = 64) -> Section:
    """Measure."""
    torch.set_num_threads(1)
    batch = torch.randn(examples, 32)
    kinds: dict[str, nn.Module] = {
        "clean": nn.Identity(),
        "a leak in the outputs, named": Mixing(),
        "a leak in the gradients alone, named": MixingBack(),
    }
    models = {name: mlp(width, part) for name, part in kinds.items()}
    cases: dict[str, Callable[[], float]] = {name: _checked(model, batch) for name, model in models.items()}
    measured = interleaved({"step": _stepped(models["clean"], batch), **cases}, rounds)
    costs = {name: ratios(measured[name], measured["step"]) for name in kinds}
    claims = [Claim(f"check for batch leaks, {name}, in training steps", costs[name].median, 45, 40) for name in kinds]
    rows = table(["", "training steps"], [[name, cost.shown(1)] for name, cost in costs.items()])
    return Section("The check for batch leaks", TEXT.format(examples=examples, table=rows), claims, on_page=False)


def _checked(model: nn.Module, batch: Tensor) -> Callable[[], float]:
    def turn() -> float:
        before = process_time()
        check_batch_leak(model, batch)
        return process_time() - before

    return turn


def _stepped(model: nn.Module, batch: Tensor) -> Callable[[], float]:
    optimizer = torch.optim.Adam(model.parameters())

    def turn() -> float:
        before = process_time()
        for _ in range(STEPS):
            optimizer.zero_grad()
            model(batch).square().mean().backward()
            optimizer.step()
        return (process_time() - before) / STEPS

    return turn
