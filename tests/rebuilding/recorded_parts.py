"""Classes and functions that tests record, at the top level of a module that a fresh process can import."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from train_manager import Extension, Objective, TrainManager, recorded


@recorded
class Head(nn.Module):
    def __init__(self, classes: int, bias: bool = True) -> None:
        super().__init__()
        self.layer = nn.Linear(4, classes, bias)

    def forward(self, x: Tensor) -> Tensor:
        result: Tensor = self.layer(x)
        return result


@recorded
class Net(nn.Module):
    def __init__(self, width: int, threshold: float = 0.5, head: nn.Module | None = None) -> None:
        super().__init__()
        self.width, self.threshold = width, threshold
        self.body, self.head = nn.Linear(2, 4), head or nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        result: Tensor = self.head(self.body(x).tanh())
        return result


@recorded
def weights_and_biases(model: nn.Module, lr: float) -> torch.optim.Optimizer:
    """Make an optimizer of a model, with groups by the names of its parameters."""
    named = dict(model.named_parameters())
    groups = [[one for name, one in named.items() if name.endswith(kind)] for kind in ("weight", "bias")]
    return torch.optim.SGD([{"params": group} for group in groups], lr=lr)


@recorded
class Holder:
    """Takes anything, and keeps it."""

    def __init__(self, *values: Any, **named: Any) -> None:
        self.values, self.named = values, named


@recorded
class Base:
    def __init__(self, size: int = 3) -> None:
        self.size = size


@recorded
class Derived(Base):
    def __init__(self, scale: float) -> None:
        super().__init__(size=int(10 * scale))
        self.scale = scale


class Unrecorded(Base):
    pass


@recorded
@dataclass(frozen=True)
class Settings:
    rate: float
    steps: tuple[int, ...] = (1, 2)


@recorded
class Point(NamedTuple):
    x: int
    y: int = 0


@recorded
class Colour(Enum):
    RED = 1
    GREEN = 2


@recorded
def scaled_loss(prediction: Tensor, targets: Tensor) -> Tensor:
    return nn.functional.cross_entropy(prediction, targets)


@recorded
class Penalised(Objective):
    """A loss that holds the model, so that both must be one after they were rebuilt."""

    def __init__(self, model: nn.Module, weight: float = 0.1) -> None:
        super().__init__()
        self.model, self.weight = model, weight

    def loss(self, prediction: Tensor, targets: Tensor) -> Tensor:
        penalty = sum((p.square().sum() for p in self.model.parameters()), torch.tensor(0.0))
        return nn.functional.cross_entropy(prediction, targets) + self.weight * penalty


@recorded
class Probe(Extension):
    def __init__(self, depth: int = 2) -> None:
        self.depth = depth


@recorded
class WidthTrainer(TrainManager):
    """A TrainManager whose own arguments are others."""

    def __init__(self, width: int, **more: Any) -> None:
        super().__init__(model=Net(width, head=Head(3)), loss=scaled_loss, optimizer=torch.optim.SGD, **more)
        self.width = width
