from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn
from torch.optim import SGD

from train_manager.model.optimizers import learning_rates, parameters_with_gradients, set_learning_rates


def two_groups(*rates: float | Tensor) -> SGD:
    return SGD([{"params": [torch.zeros(1, requires_grad=True)], "lr": rate} for rate in rates], foreach=False)


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
