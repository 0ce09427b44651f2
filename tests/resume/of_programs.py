"""Trainings by programs that do more than one call: phases, several runs, loops of their own."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.optim.lr_scheduler import ExponentialLR

from tests.resume.trainings import adam, batches, in_memory, training
from train_manager import (
    TrainManager,
)
from train_manager.extensions import (
    EMA,
    Accumulate,
)


def head(tm: TrainManager) -> Any:
    return adam(tm.model[-1].parameters())


def two_phases(tm: TrainManager) -> None:
    with tm.run():
        with tm.phase("head", optimizer=lambda _: head(tm), epochs=1):
            tm.train()
        with tm.phase("all", lr_schedule=lambda optimizer: ExponentialLR(optimizer, 0.5), epochs=2):
            tm.train()


@training(two_phases)
def phases() -> dict[str, Any]:
    return {"extensions": [EMA(0.5)]}


def before_within_and_after(tm: TrainManager) -> None:
    with tm.run():
        tm.train()
        with tm.phase("head", optimizer=lambda _: head(tm), steps_per_epoch=3, epochs=1):
            tm.train()
        tm.epochs += 1
        tm.train()


@training(before_within_and_after)
def training_before_and_after_a_phase() -> dict[str, Any]:
    return {}


def nested(tm: TrainManager) -> None:
    with tm.run():
        with tm.phase("outer", epochs=1, extensions=[Accumulate(3)]):
            tm.train()
            with tm.phase("inner", optimizer=lambda _: head(tm), epochs=1, train_data=in_memory(seed=5)):
                tm.train()
            tm.epochs += 1
            tm.train()
        tm.train()


@training(nested)
def nested_phases() -> dict[str, Any]:
    return {"extensions": [EMA(0.5)]}


def model_of_its_own(tm: TrainManager) -> None:
    small = nn.Sequential(nn.Linear(4, 2), nn.BatchNorm1d(2))
    with tm.run():
        with tm.phase("small", model=small, epochs=1):
            tm.train()
        with torch.no_grad():
            tm.model[-1].bias.add_(small[0].bias)
        tm.train()


@training(model_of_its_own)
def phase_with_a_model_of_its_own() -> dict[str, Any]:
    return {}


def model_of_its_own_that_is_kept(tm: TrainManager) -> None:
    small = nn.Sequential(nn.Linear(4, 2), nn.BatchNorm1d(2))
    with tm.run():
        with tm.phase("small", model=small, epochs=1):
            tm.train()
        tm.train()
    tm["ema"].kept = small  # else its average would go with it, but not one that was loaded


@training(model_of_its_own_that_is_kept)
def phase_with_an_average_that_begins_with_its_model() -> dict[str, Any]:
    return {"extensions": [EMA(0.5, begin="model")]}


def phases_without_a_run(tm: TrainManager) -> None:
    with tm.phase("head", optimizer=lambda _: head(tm), epochs=1):
        tm.train()
    tm.train()


@training(phases_without_a_run)
def phases_whose_runs_are_their_own() -> dict[str, Any]:
    return {"epochs": 1}


def epoch_after_epoch(tm: TrainManager) -> None:
    while tm.epoch_num < 3:
        tm.epochs = tm.epoch_num + 1
        tm.train()


@training(epoch_after_epoch)
def several_runs() -> dict[str, Any]:
    return {"epochs": 1, "extensions": [EMA(0.5)]}


def epoch_after_epoch_in_one_run(tm: TrainManager) -> None:
    with tm.run():
        epoch_after_epoch(tm)


@training(epoch_after_epoch_in_one_run)
def several_calls_in_one_run() -> dict[str, Any]:
    return {"epochs": 1, "extensions": [EMA(0.5), Accumulate(3)]}


def own_loop(tm: TrainManager) -> None:
    with tm.run():
        for batch in batches()[tm.step_num :]:
            tm.train_on_batch(batch)


@training(own_loop)
def loop_of_its_own() -> dict[str, Any]:
    return {"train_data": None, "extensions": [EMA(0.5), Accumulate(2)]}
