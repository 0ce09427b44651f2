"""A manager trains as a bare PyTorch loop does: the weights are the same, bit for bit."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.optim import AdamW, Optimizer
from torch.optim.lr_scheduler import LRScheduler

from tests.support.training import At, Batch, MakeOptimizer, make_batches, sgd, shuffled, skip_stage, warm_up, weights
from train_manager import Extension, TrainManager, always
from train_manager.testing import Recorder, tiny_manager


class Watcher(Extension):
    """Reads everything, everywhere."""

    def __init__(self) -> None:
        self.values = 0

    def pre_stage(self, **fixtures: Any) -> None:
        self.values += sum(float(value.detach().sum()) for value in fixtures.values() if isinstance(value, Tensor)) != 0

    def post_stage(self, **fixtures: Any) -> None:
        self.pre_stage(**fixtures)

    @always
    def post_run(self, exc_type: object, **fixtures: Any) -> None:
        self.pre_stage(**fixtures)

    def around_train_step_batch(self, step_num: int) -> Iterator[None]:
        yield


class Tagged(Watcher):
    """A second one, which looks at the gradients too."""

    def post_train_backward(self, train_manager: TrainManager) -> None:
        self.norms = [p.grad.norm().item() for p in train_manager.model.parameters() if p.grad is not None]


def make_model(dropout: float) -> nn.Module:
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(2, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Dropout(dropout), nn.Linear(8, 2))


class Augmented:
    """Data that draws from all the global random states."""

    def __len__(self) -> int:
        return 5

    def __iter__(self) -> Iterator[Batch]:
        for inputs, targets in make_batches(5):
            yield inputs + torch.randn_like(inputs) * random.random() + float(np.random.rand()), targets


def adamw(parameters: Iterable[nn.Parameter]) -> Optimizer:
    return AdamW(parameters, lr=0.01, weight_decay=0.1)


OPTIMIZERS = pytest.mark.parametrize("optimizer", [sgd, adamw])


DATA = pytest.mark.parametrize(
    "data", [lambda: make_batches(5), shuffled, Augmented], ids=["list", "shuffled", "drawn"]
)


SCHEDULES = pytest.mark.parametrize("schedule", [None, warm_up], ids=["constant", "schedule"])


DROPOUTS = pytest.mark.parametrize("dropout", [0.0, 0.5])


MakeSchedule = Callable[[Optimizer], LRScheduler] | None


def bare_loop(optimizer: MakeOptimizer, data: Iterable[Batch], schedule: MakeSchedule, dropout: float) -> Tensor:
    """What a TrainManager is to do, without it."""
    model = make_model(dropout)
    opt = optimizer(model.parameters())
    scheduler = schedule(opt) if schedule else None
    random.seed(3)
    np.random.seed(3)
    torch.manual_seed(3)
    model.train()
    for _ in range(3):
        for inputs, targets in data:
            loss = F.cross_entropy(model(inputs), targets)
            loss.backward()
            opt.step()
            opt.zero_grad()
        if scheduler:
            scheduler.step()
    return weights(model)


def managed(
    optimizer: MakeOptimizer, data: Iterable[Batch], schedule: MakeSchedule, dropout: float, *extensions: Extension
) -> Tensor:
    tm = TrainManager(
        model=make_model(dropout),
        loss=F.cross_entropy,
        optimizer=optimizer,
        train_data=data,
        eval_data={"valid": shuffled(), "noisy": Augmented()},
        lr_schedule=schedule,
        epochs=3,
        seed=3,
        extensions=extensions,
    )
    tm.train()
    return weights(tm.model)


@OPTIMIZERS
@DATA
@SCHEDULES
@DROPOUTS
def test_the_weights_are_those_of_a_bare_loop_bit_for_bit(
    optimizer: MakeOptimizer, data: Callable[[], Iterable[Batch]], schedule: MakeSchedule, dropout: float
) -> None:
    assert torch.equal(managed(optimizer, data(), schedule, dropout), bare_loop(optimizer, data(), schedule, dropout))


@OPTIMIZERS
@DATA
def test_watching_extensions_leave_the_weights_bit_for_bit(
    optimizer: MakeOptimizer, data: Callable[[], Iterable[Batch]]
) -> None:
    watched = managed(optimizer, data(), warm_up, 0.5, Watcher(), Tagged(), Recorder())

    assert torch.equal(watched, bare_loop(optimizer, data(), warm_up, 0.5))


def test_evaluating_less_often_leaves_the_weights_bit_for_bit() -> None:
    no_eval = At("pre_eval", skip_stage)

    assert torch.equal(managed(sgd, Augmented(), None, 0.5, no_eval), managed(sgd, Augmented(), None, 0.5))


def test_evaluating_after_every_step_leaves_the_weights_bit_for_bit() -> None:
    soon = At("post_train_step_batch", lambda train_manager: train_manager.eval_soon())

    assert torch.equal(managed(sgd, Augmented(), None, 0.5, soon), managed(sgd, Augmented(), None, 0.5))


def test_epochs_in_several_runs_are_those_of_one_run() -> None:
    at_once, in_turn = (tiny_manager(train_data=shuffled(), seed=0, epochs=3) for _ in range(2))
    at_once.train()
    in_turn.train_epochs(1)
    in_turn.eval()
    in_turn.train()

    assert torch.equal(weights(in_turn.model), weights(at_once.model))
