"""What the tests of the loop share: small batches, optimizers, losses and extensions; all weights in one tensor."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.optim import SGD, Optimizer
from torch.optim.lr_scheduler import LambdaLR, LRScheduler
from torch.utils.data import DataLoader, TensorDataset

from train_manager import Extension, InputError, SkipBatch, SkipStage, TrainManager
from train_manager.core.calls import with_parameters

Batch = tuple[Tensor, Tensor]
MakeOptimizer = Callable[[Iterable[nn.Parameter]], Optimizer]


class At(Extension):
    """One hook, made of a function: ``At("post_train_step_batch", lambda loss: ...)``."""

    def __init__(self, hook: str, function: Callable[..., Any]) -> None:
        setattr(self, hook, function)


class Values(Extension):
    """The values that some fixtures had at one hook."""

    def __init__(self, hook: str, *names: str) -> None:
        self.names = names
        self.seen: list[Any] = []
        setattr(self, hook, with_parameters(names, self.note))

    def note(self, fixtures: Mapping[str, Any]) -> None:
        found = tuple(fixtures[name] for name in self.names)
        self.seen.append(found[0] if len(found) == 1 else found)


def weights(model: nn.Module) -> Tensor:
    """All parameters and buffers."""
    return torch.cat([value.detach().flatten().double() for value in model.state_dict().values()])


def modes(model: nn.Module) -> list[bool]:
    return [module.training for module in model.modules()]


def refusal(call: Callable[[], object]) -> str:
    """Return the text of the InputError that a call raises."""
    with pytest.raises(InputError) as caught:
        call()
    return str(caught.value)


def skip_stage() -> None:
    raise SkipStage


def skip_batch() -> None:
    raise SkipBatch


def make_batches(n: int, size: int = 4) -> list[Batch]:
    generator = torch.Generator().manual_seed(n)
    inputs = torch.rand(n, size, 2, generator=generator)
    return [(x, (x.sum(dim=1) > 1).long()) for x in inputs]


def shuffled() -> DataLoader[Any]:
    x, y = (torch.cat(parts) for parts in zip(*make_batches(6), strict=True))
    return DataLoader(TensorDataset(x, y), batch_size=5, shuffle=True)


def stop_at(hook: str, at: str = "step", when: Callable[[TrainManager], bool] = lambda tm: True) -> Extension:
    def stop(train_manager: TrainManager) -> None:
        if when(train_manager):
            train_manager.stop("enough", at=at)

    return At(hook, stop)


def warm_up(optimizer: Optimizer) -> LRScheduler:
    return LambdaLR(optimizer, lambda epoch: 1 / (epoch + 2))


def sgd(parameters: Iterable[nn.Parameter]) -> Optimizer:
    return SGD(parameters, lr=0.1, momentum=0.9)


def at_rate(rate: float) -> MakeOptimizer:
    return lambda parameters: SGD(parameters, lr=rate)


def loss_of(value: Callable[[Tensor], Any]) -> Callable[[Tensor, Tensor], Any]:
    return lambda output, target: value(F.cross_entropy(output, target, reduction="none"))
