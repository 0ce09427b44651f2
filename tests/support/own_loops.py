"""What the tests of loops of your own share."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import SGD
from torch.optim.lr_scheduler import ExponentialLR
from torch.utils.data import DataLoader, TensorDataset

from tests.support.training import Batch
from train_manager import Extension, TrainManager
from train_manager.testing import tiny_manager


class Steps(Extension):
    """The first input of each batch that was trained on, and the steps done at each evaluation."""

    def __init__(self) -> None:
        self.seen: list[float] = []
        self.evals: list[int] = []

    def post_train_step_batch(self, inputs: Tensor) -> None:
        self.seen.append(inputs[0, 0].item())

    def pre_eval(self, step_num: int) -> None:
        self.evals.append(step_num)


class Unsized:
    """Four batches, without a length."""

    def __iter__(self) -> Iterator[Batch]:
        yield from make_batches(4)


def make_batches(n: int) -> list[Batch]:
    return [(torch.full((2, 2), float(number)), torch.tensor([0, 1])) for number in range(n)]


def shuffled() -> DataLoader[Any]:
    x = torch.rand(30, 2, generator=torch.Generator().manual_seed(1))
    return DataLoader(TensorDataset(x, (x.sum(dim=1) > 1).long()), batch_size=8, shuffle=True)


def manager(*extensions: Extension, **options: Any) -> TrainManager:
    """With everything that a loop could get wrong: momentum, dropout, batch norm, a schedule, shuffled data."""
    torch.manual_seed(1)
    model = nn.Sequential(nn.Linear(2, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Dropout(), nn.Linear(8, 2))
    given: dict[str, Any] = {
        "model": model,
        "optimizer": lambda parameters: SGD(parameters, lr=0.1, momentum=0.9),
        "train_data": shuffled(),
        "lr_schedule": lambda optimizer: ExponentialLR(optimizer, gamma=0.7),
        "seed": 3,
    }
    return tiny_manager(*extensions, **{**given, **options})


def weights(tm: TrainManager) -> Tensor:
    """All parameters and buffers."""
    return torch.cat([value.detach().flatten().double() for value in tm.model.state_dict().values()])
