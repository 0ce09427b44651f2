"""What tests of ``Compile`` share: graphs that are plain functions, as it takes seconds to make real ones."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from tests.support.training import Batch
from train_manager import Extension, TrainManager
from train_manager.extensions import Compile
from train_manager.loop import eval_graphs, graphs
from train_manager.model.graph import NotMade


class PlainGraph:
    """A function in place of its graph; it notes how many there are, and fails if it is told why."""

    made: list[PlainGraph]
    fails: str

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function = function
        self.calls = 0
        PlainGraph.made.append(self)

    def __call__(self, *arguments: Any) -> Any:
        if PlainGraph.fails:
            raise NotMade(PlainGraph.fails)
        self.calls += 1
        return self.function(*arguments)


def use_plain_graphs(patch: pytest.MonkeyPatch) -> type[PlainGraph]:
    """Let graphs be plain functions."""
    for module in (graphs, eval_graphs):
        patch.setattr(module, "Graph", PlainGraph)
    patch.setattr(eval_graphs.EvalGraphs, "may_not_pay", False)  # it would hang on their times which of them run
    patch.setattr(PlainGraph, "made", [], raising=False)
    patch.setattr(PlainGraph, "fails", "", raising=False)
    return PlainGraph


class Losses(Extension):
    """The losses of all batches."""

    def __init__(self) -> None:
        self.seen: list[float] = []

    def post_train_step_batch(self, loss: Tensor) -> None:
        self.seen.append(float(loss.detach()))


def batches(count: int = 4, size: int = 8, last: int = 5) -> list[Batch]:
    """Return batches of which the last is smaller."""
    inputs = torch.randn(size * (count - 1) + last, 6, generator=torch.Generator().manual_seed(0))
    return list(zip(inputs.split(size), (inputs.sum(1) > 0).long().split(size), strict=True))


def net() -> nn.Module:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        # A bias before BatchNorm would have a gradient of rounding errors, out of which AdamW makes whole steps.
        return nn.Sequential(
            nn.Linear(6, 8, bias=False), nn.BatchNorm1d(8), nn.ReLU(), nn.Dropout(0.2), nn.Linear(8, 2)
        )


def manager(*extensions: Extension, **options: Any) -> TrainManager:
    """Return a manager of 12 steps."""
    usual: dict[str, Any] = {"model": net(), "loss": F.cross_entropy, "optimizer": torch.optim.AdamW, "epochs": 3}
    usual |= {"train_data": batches(), "seed": 0, "extensions": list(extensions)}
    return TrainManager(**{**usual, **options})


def note(tm: TrainManager, kind: str = "train") -> str:
    """Return what ``explain`` says of a batch."""
    return tm._notes_on_stages()[f"{kind}_step_batch"]


def differences(extensions: Callable[[], list[Extension]], **options: Any) -> tuple[float, TrainManager]:
    """Train eagerly and compiled; return the largest difference of losses and weights, and the compiled training."""
    found: list[tuple[list[float], TrainManager]] = []
    for own in ([], [Compile()]):
        losses = Losses()
        tm = manager(*own, losses, *extensions(), **{name: make() for name, make in options.items()})
        tm.train()
        found.append((losses.seen, tm))
    (eager, one), (compiled, other) = found
    states = zip(one.model.state_dict().values(), other.model.state_dict().values(), strict=True)
    of_weights = max(float((a.double() - b.double()).abs().max()) for a, b in states)
    of_losses = max(abs(a - b) for a, b in zip(eager, compiled, strict=True))
    return max(of_weights, of_losses), other
