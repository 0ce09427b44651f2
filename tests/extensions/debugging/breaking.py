"""Trainings that break at a given step."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from train_manager import Extension, NonFiniteLoss, TrainManager
from train_manager.extensions import (
    NonFiniteFinder,
)
from train_manager.testing import tiny_manager

NAN, INF = torch.nan, torch.inf


class Breaks(nn.Module):
    """Calls a function in training, for batches whose first number is marked."""

    def __init__(self, function: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.function, self.scale = function, nn.Parameter(torch.ones(2))

    def forward(self, x: Tensor) -> Tensor:
        return self.function(x * self.scale) if self.training and x[0, 0] > 5 else x * self.scale


def net(function: Callable[[Tensor], Tensor]) -> nn.Sequential:
    return nn.Sequential(nn.Sequential(nn.Identity(), Breaks(function)), nn.Linear(2, 2))


def marked(at: int) -> list[tuple[Tensor, Tensor]]:
    """Return three batches, of which one is marked."""
    batches = [(inputs.clone(), targets) for inputs, targets in tiny_manager().train_data or ()]
    batches[at - 1][0][0, 0] = 10
    return batches


def breaking(function: Callable[[Tensor], Tensor], at: int, *extensions: Extension, **options: Any) -> TrainManager:
    """Return a manager with a function that breaks one of three batches."""
    found = extensions or (NonFiniteFinder(),)
    return tiny_manager(*found, model=net(function), train_data=marked(at), **options)


def error_of(tm: TrainManager) -> NonFiniteLoss:
    with pytest.raises(NonFiniteLoss) as caught:
        tm.train()
    return caught.value


def log(x: Tensor) -> Tensor:
    return (x * 0).log()
