"""What the tests of edited programs share: a training whose program is changed before it resumes."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.optim import AdamW

from train_manager import TrainManager
from train_manager.errors import CheckpointError
from train_manager.extensions import (
    Checkpoints,
)
from train_manager.testing import tiny_manager

DIFFERS = "this program is not the one that wrote the checkpoint; for each difference, one of the two is used:"
MISFITS = "the checkpoint does not fit this training:"


class Branches(nn.Module):
    """Two layers of one shape, which may be defined in another order."""

    a: nn.Linear
    b: nn.Linear

    def __init__(self, *order: str) -> None:
        super().__init__()
        for name in order:
            torch.manual_seed(ord(name))
            setattr(self, name, nn.Linear(2, 2))

    def forward(self, inputs: Tensor) -> Tensor:
        output: Tensor = self.b(torch.tanh(self.a(inputs)))
        return output


class Counting(nn.Linear):
    """A layer with a number that its state does not have."""

    calls = 0

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__(inputs, outputs)
        self.calls = 0

    def forward(self, input: Tensor) -> Tensor:
        self.calls += 1
        return super().forward(input)


def calls_of(model: nn.Module) -> int:
    return sum(one.calls for one in model.modules() if isinstance(one, Counting))


def trained(train_dir: Path, *extensions: Any, epochs: int = 1, **options: Any) -> TrainManager[Any]:
    """Train, and resume from what is there."""
    tm = tiny_manager(Checkpoints(resume=True), *extensions, train_dir=train_dir, epochs=epochs, **options)
    tm.train()
    return tm


def list_differences(train_dir: Path, *extensions: Any, epochs: int = 2, **options: Any) -> list[str]:
    """Resume, and return what is told of."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        trained(train_dir, *extensions, epochs=epochs, **options)
    texts = [str(one.message) for one in caught]
    assert all(text.startswith(DIFFERS) for text in texts), texts
    return [line for text in texts for line in text.splitlines()[1:]]


def refused(train_dir: Path, *extensions: Any, epochs: int = 2, **options: Any) -> list[str]:
    """Resume, and return why that is refused."""
    with pytest.raises(CheckpointError) as caught:
        trained(train_dir, *extensions, epochs=epochs, **options)
    lines = str(caught.value).splitlines()
    assert lines[0] == MISFITS
    return [line for line in lines if line.startswith("  - ")]


def adamw(**options: Any) -> Callable[[Any], Any]:
    return lambda parameters: AdamW(parameters, **options)
