"""Trainings with extensions that hold more than numbers, and write no state of their own."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Adam
from torch.optim.swa_utils import AveragedModel

from tests.resume.trainings import network, training
from train_manager import Extension, TrainManager


class Averages(Extension):
    """Average the weights in a model that the first step makes, and train towards the average."""

    average: AveragedModel | None = None

    def post_train_step_batch(self, train_manager: TrainManager) -> None:
        if self.average is None:
            self.average = AveragedModel(train_manager.model)
        self.average.update_parameters(train_manager.model)
        with torch.no_grad():
            for parameter, mean in zip(train_manager.model.parameters(), self.average.parameters(), strict=True):
                parameter.lerp_(mean, 0.1)


class AveragesFromTheStart(Extension):
    """Average the weights in a model that each training call makes."""

    def pre_train(self, train_manager: TrainManager) -> None:
        self._average = AveragedModel(train_manager.model)

    def post_train_step_batch(self, train_manager: TrainManager) -> None:
        self._average.update_parameters(train_manager.model)


class Scales(Extension):
    """Train a number of its own, by an optimizer of its own, with the losses as its target."""

    def __init__(self) -> None:
        self._scale = nn.Parameter(torch.ones(()))
        self._optimizer = Adam([self._scale], lr=0.1)
        self.head = nn.Linear(1, 1)
        self.of_head = Adam(self.head.parameters(), lr=0.1)

    def post_train_step_batch(self, loss: Tensor) -> None:
        predicted = self.head(self._scale.reshape(1)).sum()
        (predicted - loss.detach()).square().backward()
        for optimizer in (self._optimizer, self.of_head):
            optimizer.step()
            optimizer.zero_grad()


class Counts(Extension):
    """Sum losses in a tensor that begins as a number, in one that is made late, and in one that is changed in place."""

    late: Tensor | None = None

    def __init__(self) -> None:
        self.total: Tensor | float = 0.0
        self._in_place = torch.zeros(1)

    def post_train_step_batch(self, loss: Tensor) -> None:
        self.total = self.total + loss.detach()
        self.late = loss.detach() if self.late is None else 0.9 * self.late + loss.detach()
        self._in_place += loss.detach()


class OfEachCall(Extension):
    """Make a sum of losses, and a net of random weights that it changes, in each training call."""

    def pre_train(self) -> None:
        self.sum, self.net = torch.zeros(()), nn.Linear(1, 1)

    def post_train_step_batch(self, loss: Tensor) -> None:
        self.sum += loss.detach()
        with torch.no_grad():
            self.net.weight += self.sum


class MakesTwo(Extension):
    """Make two objects where a hook finds that the second one is not there."""

    average: AveragedModel | None = None
    optimizer: Adam | None = None

    def post_train_step_batch(self, train_manager: TrainManager) -> None:
        if self.optimizer is None:
            self.average = AveragedModel(train_manager.model)
            self.optimizer = Adam(self.average.parameters(), lr=0.1)
        assert self.average is not None
        self.average.update_parameters(train_manager.model)


class OfEachRun(AveragesFromTheStart):
    """Average the weights in a model that each run makes."""

    def pre_run(self, train_manager: TrainManager) -> None:
        self.pre_train(train_manager)


def evaluated_first(tm: TrainManager) -> None:
    tm.eval()
    tm.train()


@training(evaluated_first)
def what_a_run_makes_after_an_evaluation() -> dict[str, Any]:
    return {"model": network(nn.Dropout(0.5)), "extensions": [OfEachRun(), OfEachCall()]}


@training()
def what_extensions_hold() -> dict[str, Any]:
    return {
        "model": network(nn.BatchNorm1d(8)),
        "extensions": [Averages(), AveragesFromTheStart(), Scales(), Counts(), OfEachCall(), MakesTwo()],
    }
