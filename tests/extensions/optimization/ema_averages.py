"""What the tests of EMA compare: the weights of a training, and the averages of an EMA."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from train_manager import Extension, TrainManager
from train_manager.extensions import EMA


def weights(tm: TrainManager) -> list[Tensor]:
    return [parameter.detach().clone() for parameter in tm.model.parameters()]


def averages(ema: EMA) -> list[Tensor]:
    return list(ema.average.values())


def same(one: list[Tensor], other: list[Tensor]) -> bool:
    return all(a.equal(b) for a, b in zip(one, other, strict=True))


class Weights(Extension):
    """Record the weights after each step, and in each evaluation."""

    def __init__(self) -> None:
        self.trained: list[list[Tensor]] = []
        self.evaluated: list[list[Tensor]] = []

    def post_train_step_batch(self, train_manager: TrainManager) -> None:
        self.trained.append(weights(train_manager))

    def pre_eval_step_batch(self, train_manager: TrainManager) -> None:
        self.evaluated.append(weights(train_manager))


def grow(model: nn.Module) -> dict[nn.Parameter, nn.Parameter]:
    """Give the first layer of the tiny model two units more, and return its new parameters by its old ones."""
    first, last = model.get_submodule("0"), model.get_submodule("2")
    replaced = {}
    for layer, name, shape in ((first, "weight", (10, 2)), (first, "bias", (10,)), (last, "weight", (2, 10))):
        old = layer.get_parameter(name)
        grown = torch.full(shape, 0.125)
        grown[tuple(map(slice, old.shape))] = old.detach()
        replaced[old] = nn.Parameter(grown)
        setattr(layer, name, replaced[old])
    return replaced


def assert_has_grown(ema: EMA, before: dict[str, Tensor]) -> None:
    after = ema.state_dict()["average"]
    assert [tuple(tensor.shape) for tensor in after.values()] == [(10, 2), (10,), (2, 10), (2,)]
    for name, tensor in before.items():
        common = tuple(map(slice, tensor.shape))
        assert after[name][common].equal(tensor)
        after[name][common] = 0.125
        assert bool((after[name] == 0.125).all())
