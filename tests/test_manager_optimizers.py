"""Several optimizers that one loss steps, and their schedules by name; how they are made is in tests/loop."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import SGD, Optimizer
from torch.optim.lr_scheduler import ExponentialLR

from tests.support.training import at_rate, make_batches
from train_manager import TrainManager
from train_manager.testing import tiny_manager


class Parts(nn.Module):
    """Two parts, each with an optimizer of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Linear(2, 3)
        self.head = nn.Linear(3, 2)

    def forward(self, inputs: Tensor) -> Any:
        return self.head(self.body(inputs))


class Both(TrainManager):
    """Updates both parts with one loss."""

    def train_batch(self) -> None:
        loss = self.forward()
        self.backward(loss, "body", retain_graph=True)
        self.backward(loss, "head")
        self.step("body")
        self.step("head")


def decay(optimizer: Optimizer) -> ExponentialLR:
    return ExponentialLR(optimizer, 0.5)


def of_parts(**options: Any) -> Both:
    given = {"body": at_rate(0.1), "head": at_rate(0.2)}
    return Both(
        **{
            "model": Parts(),
            "loss": nn.functional.cross_entropy,
            "optimizer": given,
            "train_data": make_batches(2),
            **options,
        }
    )


def rates(tm: TrainManager) -> list[float]:
    return [optimizer.param_groups[0]["lr"] for optimizer in tm.optimizers.values()]


def test_a_loss_of_the_forward_pass_steps_both_as_one_optimizer_would() -> None:
    tm = of_parts()
    model = Parts()
    model.load_state_dict(tm.model.state_dict())
    optimizer = SGD(
        [{"params": model.body.parameters(), "lr": 0.1}, {"params": model.head.parameters(), "lr": 0.2}], lr=0.1
    )
    for inputs, targets in make_batches(2):
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(inputs), targets).backward()
        optimizer.step()
    tm.train()

    assert all(torch.equal(one, other) for one, other in zip(tm.model.parameters(), model.parameters(), strict=True))


def test_schedules_are_stepped_after_each_epoch_by_name() -> None:
    tm = of_parts(lr_schedule={"head": decay}, epochs=2)
    tm.train()

    assert rates(tm) == [0.1, 0.05]


def test_a_schedule_is_not_stepped_by_an_epoch_that_was_left() -> None:
    tm = tiny_manager(lr_schedule=decay)
    tm.train_steps(2)
    assert rates(tm) == [0.5]
    tm.train_steps(1)

    assert rates(tm) == [0.25]
