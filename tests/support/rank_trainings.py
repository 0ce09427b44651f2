"""Trainings that processes do together in tests, and one process alone: small, and each with a part of its own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from train_manager import Extension, InMemory, SeededDataLoader, TrainManager
from train_manager.extensions import EMA, SAM, Accumulate, ClipGradients, Distributed, Metrics
from train_manager.model.sharding import as_whole

Recipe = Callable[..., TrainManager]


def net() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(5, 8), nn.Tanh(), nn.Linear(8, 3))


def rows(n: int) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(n)
    x = torch.randn(n, 5, generator=generator)
    return x, (x.sum(dim=1) > 0).long() + (x[:, 0] > 1).long()


def data(n: int, **options: Any) -> InMemory:
    return InMemory(*rows(n), **{"batch_size": 12, "shuffle": True, **options})


def manager(*extensions: Extension, n: int = 61, of: type[TrainManager] = TrainManager, **options: Any) -> TrainManager:
    """A training of 61 examples in batches of 12: the last batch has one row, so that all ranks but one have none."""
    given: dict[str, Any] = {
        "model": net(),
        "loss": F.cross_entropy,
        "optimizer": lambda parameters: torch.optim.AdamW(parameters, lr=0.01),
        "train_data": data(n),
        "eval_data": {"odd": data(51, batch_size=10, shuffle=False), "one": data(1, batch_size=10, shuffle=False)},
        "epochs": 3,
        **options,
    }
    return of(extensions=list(extensions), **given)


class OwnBatch(TrainManager):
    def train_batch(self, model: Any, inputs: Tensor, targets: Tensor) -> None:
        self.update(F.cross_entropy(model(inputs), targets) + 0.01 * model(inputs).square().mean())


class TwoLosses(TrainManager):
    """Runs two backward passes for one step."""

    def train_batch(self, model: Any, inputs: Tensor, targets: Tensor) -> None:
        self.backward(F.cross_entropy(model(inputs), targets))
        self.backward(model(inputs).square().mean())
        self.step()


class ByParts(TrainManager):
    """Calls the parts of its model by themselves."""

    def train_batch(self, model: Any, inputs: Tensor, targets: Tensor) -> None:
        hidden = model[1](model[0](inputs))
        self.update(F.cross_entropy(model[2](hidden), targets))


class InTurns(TrainManager):
    """Updates two optimizers in each batch, each with parts of the model of its own."""

    def train_batch(self, model: Any, inputs: Tensor, targets: Tensor) -> None:
        hidden = model[1](model[0](inputs))
        self.update(hidden.square().mean() + F.cross_entropy(model[2](hidden), targets), "first")
        hidden = model[1](model[0](inputs)).detach()
        self.update(F.cross_entropy(model[2](hidden), targets), "last")


class WeightedLoss(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(3))

    def forward(self, prediction: Tensor, targets: Tensor) -> Tensor:
        return F.cross_entropy(prediction * self.scale, targets)


def two_optimizers(**options: Any) -> dict[str, Any]:
    model = net()
    first, last = torch.optim.Adam(model[0].parameters(), lr=0.01), torch.optim.SGD(model[2].parameters(), lr=0.1)
    return {"model": model, "optimizer": {"first": first, "last": last}, **options}


def loss_with_weights(**options: Any) -> dict[str, Any]:
    model, loss = net(), WeightedLoss()
    optimizer = torch.optim.Adam([*model.parameters(), *loss.parameters()], lr=0.01)
    return {"model": model, "loss": loss, "optimizer": optimizer, **options}


RECIPES: dict[str, Recipe] = {
    "plain": manager,
    "63 examples": lambda *added, **options: manager(*added, n=63, **options),
    "clipping": lambda *added, **options: manager(ClipGradients(0.1), *added, **options),
    "EMA": lambda *added, **options: manager(EMA(0.9), *added, **options),
    "Metrics": lambda *added, **options: manager(Metrics("accuracy", "f1"), *added, **options),
    "SAM": lambda *added, **options: manager(SAM(), *added, **options),
    "Accumulate": lambda *added, **options: manager(Accumulate(3), *added, **options),
    "own train_batch": lambda *added, **options: manager(*added, of=OwnBatch, **options),
    "loader": lambda *added, **options: manager(
        *added,
        train_data=SeededDataLoader(torch.utils.data.TensorDataset(*rows(61)), batch_size=12, shuffle=True),
        **options,
    ),
    "two losses": lambda *added, **options: manager(*added, of=TwoLosses, **options),
    "parts by themselves": lambda *added, **options: manager(*added, of=ByParts, **options),
    "two optimizers": lambda *added, **options: manager(*added, of=InTurns, **two_optimizers(**options)),
    "a loss with weights": lambda *added, **options: manager(*added, **loss_with_weights(**options)),
}
BY_PARTS = ("two losses", "parts by themselves", "two optimizers", "a loss with weights")
"""Recipes that strategy "ddp" does not take."""


def assert_as_alone(together: list[dict[str, Any]], alone: dict[str, Any]) -> None:
    """Assert that processes came to what one process came to, and all of them to the same weights."""
    for one in together:
        torch.testing.assert_close(one["weights"], alone["weights"], atol=1e-6, rtol=0)
        assert torch.equal(one["weights"], together[0]["weights"])  # ranks are equal to the bit
        for kind in ("epochs", "evaluations"):
            for row, of_alone in zip(one[kind], alone[kind], strict=True):
                assert {**row, "seconds": 0} == pytest.approx({**of_alone, "seconds": 0}, abs=1e-6)
        counts = "samples_seen", "steps", "updates"
        assert [one[name] for name in counts] == [alone[name] for name in counts]


def outcome(tm: TrainManager, result: Any) -> dict[str, Any]:
    """What a training has come to."""
    return {
        "weights": whole(tm),
        "epochs": [dict(row) for row in tm.history.epochs],
        "evaluations": [dict(row) for row in tm.history.evaluations],
        "samples_seen": tm.samples_seen,
        "steps": tm.step_num,
        "updates": tm.update_num,
        "metrics": result.metrics,
        "stopped": (result.stopped, result.stopped_by),
        "run_id": tm.run_id,
    }


def whole(tm: TrainManager) -> Tensor:
    """All weights of a model, sharded or not."""
    states = [tm.model.state_dict(), *(one.state_dict() for one in (tm.loss,) if isinstance(one, nn.Module))]
    values = [as_whole(value.detach()) for state in states for value in state.values()]
    return torch.cat([value.flatten().double() for value in values])


def train(recipe: str, strategy: str | None) -> dict[str, Any]:
    """Train as a recipe says, together if a strategy is given."""
    torch.manual_seed(0)
    tm = RECIPES[recipe](*([] if strategy is None else [Distributed(strategy)]))
    return outcome(tm, tm.train())
