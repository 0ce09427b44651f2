"""skorch: a NeuralNet with ``fit``; bare without its callbacks."""

from __future__ import annotations

from typing import Any

from skorch import NeuralNet
from skorch.callbacks import EpochScoring
from skorch.helper import predefined_split
from torch import nn
from torch.optim import AdamW

from benchmarks.programs.problems import LR, Marked, Problem


def usual(problem: Problem, epochs: int) -> nn.Module:
    def accuracy(net: Any, data: Any, y: Any = None) -> float:
        return float((net.predict(data).argmax(axis=1) == problem.valid[1].numpy()).mean())

    net = NeuralNet(
        problem.new_model(),
        nn.CrossEntropyLoss,
        optimizer=AdamW,
        lr=LR,
        max_epochs=epochs,
        batch_size=problem.batch_size,
        train_split=predefined_split(Marked(problem, problem.valid)),
        callbacks=[EpochScoring(accuracy, lower_is_better=False)],
    )
    net.fit(*problem.train)
    model: nn.Module = net.module_
    return model


def bare(problem: Problem, epochs: int) -> nn.Module:
    net = NeuralNet(
        problem.new_model(),
        nn.CrossEntropyLoss,
        optimizer=AdamW,
        lr=LR,
        max_epochs=epochs,
        batch_size=problem.batch_size,
        train_split=predefined_split(Marked(problem, problem.valid)),
        callbacks="disable",
        verbose=0,
    )
    net.fit(*problem.train)
    model: nn.Module = net.module_
    return model
