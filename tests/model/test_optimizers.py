from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.optim import SGD

from train_manager import InputError
from train_manager.model.optimizers import (
    in_order_of,
    learning_rates,
    optimizer_of,
    parameters_with_gradients,
    set_learning_rates,
)


def two_groups(*rates: float | Tensor) -> SGD:
    return SGD([{"params": [torch.zeros(1, requires_grad=True)], "lr": rate} for rate in rates], foreach=False)


def manager(**given: Any) -> Any:
    return SimpleNamespace(**given)


GENERATOR, CRITIC = SGD([torch.zeros(1)]), SGD([torch.zeros(1)])
SEVERAL = manager(optimizer={"generator": GENERATOR, "critic": CRITIC})


def test_parameters_that_are_not_the_models_come_after_those_in_its_order() -> None:
    model, temperature = nn.Linear(2, 2), nn.Parameter(torch.ones(1))
    groups: list[Any] = [{"params": [temperature, model.bias]}, {"params": [model.weight]}]
    optimizer = SGD(groups)

    assert [id(one) for one in in_order_of(model, optimizer)] == [*map(id, (model.weight, model.bias, temperature))]


def test_the_only_optimizer_needs_no_name() -> None:
    assert optimizer_of(manager(optimizer=CRITIC), None, "WarmUp") is CRITIC
    assert optimizer_of(manager(optimizer={"critic": CRITIC}), None, "WarmUp") is CRITIC
    assert optimizer_of(manager(optimizer=None, optimizers={"critic": CRITIC}), None, "WarmUp") is CRITIC


def test_one_of_several_optimizers_is_found_by_its_name() -> None:
    assert optimizer_of(SEVERAL, "generator", "WarmUp") is GENERATOR


@pytest.mark.parametrize("name", [None, "critic"])
def test_a_manager_without_an_optimizer_has_none_of_any_name(name: str | None) -> None:
    assert optimizer_of(manager(optimizer=None), name, "WarmUp") is None


@pytest.mark.parametrize(
    ("given", "name", "message"),
    [
        (
            SEVERAL,
            None,
            "WarmUp works on one optimizer, but there are 2: 'generator', 'critic'\n  name it: optimizer='generator'",
        ),
        (SEVERAL, "critik", "WarmUp finds no optimizer 'critik'\n  did you mean 'critic'?"),
        (SEVERAL, "x", "WarmUp finds no optimizer 'x'\n  they are 'generator', 'critic'"),
        (
            manager(optimizer=CRITIC),
            "critic",
            "WarmUp finds no optimizer 'critic'\n  there is only one, so leave out optimizer='critic'",
        ),
    ],
)
def test_an_optimizer_that_cannot_be_told_is_refused(given: Any, name: str | None, message: str) -> None:
    with pytest.raises(InputError) as error:
        optimizer_of(given, name, "WarmUp")
    assert str(error.value) == message


def test_there_is_one_rate_for_each_group() -> None:
    optimizer = two_groups(0.5, 0.25)
    assert learning_rates(optimizer) == (0.5, 0.25)
    set_learning_rates(optimizer, [1.0, 2.0])
    assert learning_rates(optimizer) == (1.0, 2.0)


def test_a_rate_that_is_a_tensor_stays_the_same_tensor() -> None:
    rate = torch.tensor(0.5)
    optimizer = two_groups(rate)
    before = learning_rates(optimizer)
    set_learning_rates(optimizer, [0.1])
    assert optimizer.param_groups[0]["lr"] is rate
    assert rate.item() == pytest.approx(0.1)
    assert [float(rate) for rate in before] == [0.5]  # a copy


def test_parameters_without_a_gradient_are_left_out() -> None:
    first, second, third = (nn.Parameter(torch.ones(1)) for _ in range(3))
    optimizer = SGD([{"params": [first, second]}, {"params": [third]}], lr=0.1)
    (first + third).sum().backward()
    assert [id(parameter) for parameter in parameters_with_gradients(optimizer)] == [id(first), id(third)]


def test_where_there_is_no_optimizer_there_are_no_parameters() -> None:
    assert list(parameters_with_gradients(None)) == []
