"""One optimizer or several by name, and their learning rate schedules: how they are made, and what is refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.optim import SGD, Optimizer
from torch.optim.lr_scheduler import ExponentialLR, ReduceLROnPlateau

from tests.support.training import make_batches
from train_manager import InputError, TrainManager
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


def at_rate(rate: float) -> Callable[[Any], Optimizer]:
    return lambda parameters: SGD(parameters, lr=rate)


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


def first_line(error: BaseException) -> str:
    return str(error).splitlines()[0]


def test_a_callable_with_a_name_gets_the_parameters_of_that_part() -> None:
    tm = of_parts()
    model: Any = tm.model

    assert tm.optimizers["body"].param_groups[0]["params"] == list(model.body.parameters())
    assert tm.optimizers["head"].param_groups[0]["params"] == list(model.head.parameters())


def test_a_ready_optimizer_may_have_any_name() -> None:
    model = Parts()
    ready = SGD(model.head.parameters(), lr=0.1)
    tm = of_parts(model=model, optimizer={"body": at_rate(0.1), "anything": ready})

    assert tm.optimizers["anything"] is ready


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


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"optimizer": {}}, "optimizer is an empty dict"),
        (
            {"optimizer": {"tail": at_rate(0.1)}},
            "optimizer 'tail' is a callable of the parameters of model.tail, which is not a module",
        ),
        ({"lr_schedule": decay}, "lr_schedule and optimizer must both be dicts, or neither"),
        ({"lr_schedule": {"tail": decay}}, "lr_schedule names 'tail', but the optimizers are 'body' and 'head'"),
        ({"lr_schedule": {"head": 0.1}}, "lr_schedule needs a function of the optimizer, but was given a float"),
        (
            {"lr_schedule": {"head": lambda optimizer: optimizer.param_groups}},
            "lr_schedule must make a scheduler with step(), but made a list",
        ),
        (
            {"lr_schedule": {"head": ReduceLROnPlateau}},
            "lr_schedule steps without a metric, but ReduceLROnPlateau needs one",
        ),
        ({"optimizer": None, "lr_schedule": decay}, "lr_schedule needs an optimizer, but there is none"),
        (
            {"optimizer": SGD(Parts().parameters(), lr=0.1)},
            "the optimizer (SGD) has no parameter of the model, so nothing would be trained",
        ),
        (
            {"optimizer": 0.1},
            "the optimizer must be a torch optimizer or a callable that makes one, but is a float",
        ),
    ],
)
def test_what_is_no_optimizer_or_schedule_is_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError) as caught:
        of_parts(**options)

    assert first_line(caught.value) == message


def test_one_of_several_optimizers_without_a_parameter_of_the_model_is_refused() -> None:
    with pytest.raises(InputError, match="has no parameter of the model"):
        of_parts(optimizer={"body": at_rate(0.1), "other": SGD(Parts().parameters(), lr=0.1)})
