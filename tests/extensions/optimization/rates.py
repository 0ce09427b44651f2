"""Extensions and schedules that the tests of `LRSchedule` share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch.optim import Optimizer
from torch.optim.lr_scheduler import (
    ExponentialLR,
)

from train_manager import Extension, TrainManager, modifies

Make = Callable[[Optimizer], Any]


class Rates(Extension):
    """Record the fixture ``learning_rates`` of each step."""

    def __init__(self) -> None:
        self.seen: list[Any] = []

    def post_train_step_batch(self, learning_rates: tuple[float, ...]) -> None:
        self.seen.append(*learning_rates)


class Losses(Extension):
    """Give evaluations these losses, one after the other."""

    def __init__(self, *losses: float) -> None:
        self.losses = list(losses)

    @modifies("eval_result")
    def post_eval_step_epoch(self, eval_result: dict[str, float]) -> dict[str, float]:
        return {**eval_result, "loss": self.losses.pop(0)}


def halving(optimizer: Optimizer) -> ExponentialLR:
    return ExponentialLR(optimizer, 0.5)


def rate_of(tm: TrainManager) -> float:
    assert tm.optimizer is not None
    return float(tm.optimizer.param_groups[0]["lr"])
