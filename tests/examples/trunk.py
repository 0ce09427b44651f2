"""What the tests of examples with two tasks share: the gradients of the trunk, and the digits that are read."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

from train_manager import Extension, TrainManager


class TrunkGradients(Extension):
    """Keep the gradient of the trunk in the first batch, and those of the two parts of the loss."""

    def __init__(self) -> None:
        self.parts: list[Tensor] = []
        self.whole: Tensor | None = None

    def pre_train_backward(self, model: Any, loss_parts: Mapping[str, Tensor]) -> None:
        if self.parts:
            return
        for part in loss_parts.values():
            (gradient,) = torch.autograd.grad(part, model.trunk.weight, retain_graph=True)
            self.parts.append(gradient)

    def post_train_backward(self, model: Any) -> None:
        if self.whole is None:
            self.whole = model.trunk.weight.grad.clone()


def trunk_gradients(make: Callable[[], TrainManager]) -> TrunkGradients:
    torch.manual_seed(0)
    tm = make()
    tm.add_extension(seen := TrunkGradients())
    tm.train_steps(2)
    return seen


def accuracy(make: Callable[[], TrainManager], seed: int) -> float:
    torch.manual_seed(seed)
    return make().train().metrics["test"]["accuracy"]
