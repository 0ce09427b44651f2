"""Programs that change a model on the way, and hooks that treat one process otherwise, for the tests of ranks."""

from __future__ import annotations

import os
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from tests.support.rank_trainings import manager, net, whole
from train_manager import Extension, TrainManager, modifies
from train_manager.extensions import Distributed


def own_rank() -> int:
    return int(os.environ["RANK"])


def adam(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.Adam(model.parameters(), lr=0.01)


def with_a_new_layer(strategy: str) -> Tensor:
    """Train, then replace a layer by one that each process draws by itself."""
    tm = manager(Distributed(strategy), epochs=1)
    with tm.run():
        tm.train_epochs(1)
        tm.model[2] = nn.Linear(8, 3)
        tm.optimizer = adam(tm.model)
        tm.train_epochs(1)
    return whole(tm)


def with_another_model(strategy: str) -> Tensor:
    """Give another model between two batches of a loop of one's own."""
    tm = manager(Distributed(strategy))
    assert tm.train_data is not None
    with tm.run():
        for batch in tm.train_data:
            tm.train_on_batch(batch)
        torch.manual_seed(own_rank())
        tm.model = nn.Sequential(nn.Linear(5, 8), nn.Linear(8, 3))
        tm.optimizer = adam(tm.model)
        for batch in tm.train_data:
            tm.train_on_batch(batch)
    return whole(tm)


class Grows(Extension):
    """Replaces a layer within an epoch."""

    def post_train_step_batch(self, train_manager: Any, step_num: int) -> None:
        if step_num == 3:
            old, new = train_manager.model[2], nn.Linear(8, 3)
            train_manager.model[2] = new
            train_manager.replace_parameters({old.weight: new.weight, old.bias: new.bias})


def with_a_layer_that_grows(strategy: str) -> Tensor:
    tm = manager(Distributed(strategy), Grows(), epochs=1)
    tm.train()
    return whole(tm)


class StepsLater(TrainManager):
    """Runs the backward pass in one batch and the step in the next, which has none."""

    def train_batch(self, model: Any, inputs: Tensor, targets: Tensor, batch_num: int) -> None:
        if batch_num % 2:
            self.backward(F.cross_entropy(model(inputs), targets))
        else:
            self.step()


class EverySecond(Extension):
    def __init__(self) -> None:
        def hook(batch_num: int) -> bool:
            return batch_num % 2 == 0

        self.pre_train_step_batch = modifies("update_ends")(hook)


def with_a_step_in_the_next_batch(strategy: str | None) -> Tensor:
    ranks = [] if strategy is None else [Distributed(strategy)]
    tm = manager(*ranks, EverySecond(), of=StepsLater, n=48, epochs=1)
    tm.train()
    return whole(tm)


class Statistics(nn.Module):
    """Normalises by its batch, and keeps statistics of it."""

    def __init__(self) -> None:
        super().__init__()
        self.body, self.norm = net(), nn.BatchNorm1d(3)

    def forward(self, inputs: Tensor) -> Tensor:
        found: Tensor = self.norm(self.body(inputs))
        return found


def with_statistics(strategy: str) -> Tensor:
    tm = manager(Distributed(strategy), n=60, model=Statistics(), eval_data=None, epochs=1)
    tm.train()
    return whole(tm)


def compiled_calls(strategy: str) -> int:
    """Return how often a form of the model was called that stands in its place."""
    calls: list[int] = []

    class Form(nn.Module):
        def __init__(self, model: nn.Module) -> None:
            super().__init__()
            self._orig_mod = model

        def forward(self, inputs: Tensor) -> Tensor:
            calls.append(1)
            found: Tensor = self._orig_mod(inputs)
            return found

    tm = manager(Distributed(strategy), n=48, eval_data=None, epochs=1)
    tm.called_model = Form(tm.model)
    tm.train()
    assert isinstance(tm.called_model, Form)
    return len(calls)


class Unused(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body, self.spare = net(), nn.Linear(2, 2)

    def forward(self, inputs: Tensor) -> Tensor:
        found: Tensor = self.body(inputs)
        return found


def with_an_unused_layer() -> None:
    tm = manager(Distributed("ddp"), model=Unused(), epochs=1)
    tm.check_parameters = False
    tm.train_steps(1)


class Noise(Extension):
    """Changes the weights of each process by what it draws."""

    def post_train_step_epoch(self, train_manager: Any) -> None:
        self.pre_run(train_manager)

    def pre_run(self, train_manager: Any) -> None:
        with torch.no_grad():
            train_manager.model[0].weight.add_(own_rank() * 1e-3)


def with_noise_of_its_own() -> None:
    manager(Distributed("after"), Noise(), epochs=3).train()


def with_a_lazy_layer() -> None:
    manager(Distributed("after"), model=nn.Sequential(nn.LazyLinear(3)), optimizer=torch.optim.Adam, epochs=1).train()
