from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from train_manager.metrics.averages import MovingMean


@given(st.lists(st.floats(-10, 10, width=32), min_size=1, max_size=20))
def test_at_first_it_is_the_mean(values: list[float]) -> None:
    mean = MovingMean(share=0.01)
    for value in values:
        mean.append(torch.tensor(value))

    assert mean.value is not None
    assert mean.value.item() == pytest.approx(sum(values) / len(values), abs=1e-4)


def test_then_a_new_value_counts_its_share() -> None:
    mean = MovingMean(share=0.25)
    for value in (1.0, 1.0, 1.0, 1.0, 5.0):
        mean.append(torch.tensor(value))

    assert mean.value == 2.0


def test_a_value_that_was_handed_out_does_not_change() -> None:
    mean = MovingMean()
    mean.append(torch.tensor(1.0))
    first = mean.value
    mean.append(torch.tensor(3.0))

    assert [first, mean.value] == [torch.tensor(1.0), torch.tensor(2.0)]


def test_a_value_is_kept_without_its_graph() -> None:
    mean = MovingMean()
    mean.append(torch.ones(1, requires_grad=True).sum())

    assert mean.value is not None
    assert not mean.value.requires_grad


def test_it_follows_the_values_to_another_device() -> None:
    """It may have been saved on one and loaded on another."""
    mean = MovingMean()
    mean.append(torch.tensor(1.0))
    mean.append(torch.tensor(1.0, device="meta"))

    assert mean.value is not None
    assert mean.value.device.type == "meta"
