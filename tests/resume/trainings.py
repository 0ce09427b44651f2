"""The trainings that must resume bit for bit: each one needs something of a checkpoint that the others do not.

A training is made anew for each attempt, and its program is called again from the start, as a script would be.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.optim import AdamW

from train_manager import (
    Extension,
    InMemory,
    TrainManager,
)

Program = Callable[[TrainManager], object]
Arguments = Callable[[], dict[str, Any]]


@dataclass
class Training:
    """How to make a training, and what is done with it.

    Attributes:
        arguments: returns the arguments of TrainManager that are not the usual ones, with new objects in them.
        program: what the script does with it.
        kind: the class.
    """

    arguments: Arguments
    program: Program
    kind: type[TrainManager]

    def make(self, *extensions: Extension, **more: Any) -> TrainManager:
        """Make all of its objects, and add extensions."""
        torch.manual_seed(1)
        given = {**usual(), **self.arguments(), **more}
        return self.kind(**{**given, "extensions": [*given.get("extensions", ()), *extensions]})


TRAININGS: dict[str, Training] = {}


def training(
    program: Program = TrainManager.train, kind: type[TrainManager] = TrainManager
) -> Callable[[Arguments], Arguments]:
    """Add a training under the name of the function that returns its arguments."""

    def add(arguments: Arguments) -> Arguments:
        TRAININGS[arguments.__name__] = Training(arguments, program, kind)
        return arguments

    return add


EXAMPLES = 26  # batches of 8, 8, 8 and 2


def examples() -> tuple[Tensor, Tensor]:
    inputs = torch.randn(EXAMPLES, 4, generator=torch.Generator().manual_seed(0))
    return inputs, (inputs.sum(1) > 0).long()


def batches() -> list[tuple[Tensor, Tensor]]:
    inputs, targets = examples()
    return list(zip(inputs.split(8), targets.split(8), strict=True))


def in_memory(**options: Any) -> InMemory:
    return InMemory(*examples(), **{"batch_size": 8, "shuffle": True, **options})


def network(*layers: nn.Module) -> nn.Sequential:
    return nn.Sequential(nn.Linear(4, 8), *layers, nn.ReLU(), nn.Dropout(0.3), nn.Linear(8, 2))


def adam(parameters: Iterable[nn.Parameter]) -> AdamW:
    return AdamW(parameters, lr=1e-2)


def usual() -> dict[str, Any]:
    """A classifier with dropout, on shuffled data."""
    return {
        "model": network(),
        "loss": F.cross_entropy,
        "optimizer": adam,
        "epochs": 2,
        "train_data": in_memory(),
        "eval_data": {"valid": batches()[:2]},
        "seed": 0,
    }
