"""Averages of scalar tensors: exponential moving, and weighted."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from tests.support.adding import mean_of_parts
from train_manager.metrics.averages import ExponentialMovingAverage, WeightedMean, mean_of
from train_manager.metrics.deferred import DeferredScalars


@given(st.lists(st.floats(-10, 10, width=32), min_size=1, max_size=20))
def test_at_first_it_is_the_mean(values: list[float]) -> None:
    average = ExponentialMovingAverage(share=0.01)
    for value in values:
        average.append(torch.tensor(value))

    assert average.value is not None
    assert average.value.item() == pytest.approx(sum(values) / len(values), abs=1e-4)


def test_then_a_new_value_counts_its_share() -> None:
    average = ExponentialMovingAverage(share=0.25)
    for value in (1.0, 1.0, 1.0, 1.0, 5.0):
        average.append(torch.tensor(value))

    assert average.value == 2.0


def test_a_value_that_was_handed_out_does_not_change() -> None:
    average = ExponentialMovingAverage()
    average.append(torch.tensor(1.0))
    first = average.value
    average.append(torch.tensor(3.0))

    assert [first, average.value] == [torch.tensor(1.0), torch.tensor(2.0)]


def test_a_value_is_kept_without_its_graph() -> None:
    average = ExponentialMovingAverage()
    average.append(torch.ones(1, requires_grad=True).sum())

    assert average.value is not None
    assert not average.value.requires_grad


def test_it_follows_the_values_to_another_device() -> None:
    """It may have been saved on one and loaded on another."""
    average = ExponentialMovingAverage()
    average.append(torch.tensor(1.0))
    average.append(torch.tensor(1.0, device="meta"))

    assert average.value is not None
    assert average.value.device.type == "meta"


# ---- weighted --------------------------------------------------------------------------------------------------------


def test_a_mean_is_weighted() -> None:
    mean = WeightedMean()
    mean.append(torch.tensor(1.0), weight=3)
    mean.append(torch.tensor(5.0), weight=1)

    assert mean.value() == 2.0


def test_a_mean_of_nothing_is_nan() -> None:
    assert math.isnan(WeightedMean().value())


def test_a_mean_whose_weights_are_all_zero_is_nan() -> None:
    mean = WeightedMean()
    mean.append(torch.tensor(1.0), weight=0)

    assert math.isnan(mean.value())


def test_a_mean_is_a_plain_number_also_where_weights_are_tensors() -> None:
    mean = WeightedMean()
    weight: Tensor = torch.tensor(2)
    mean.append(torch.tensor(3.0), weight=weight)  # type: ignore[arg-type]

    assert type(mean.value()) is float


def test_weights_that_are_tensors_are_summed_as_exactly_as_numbers() -> None:
    plain, tensors = WeightedMean(), WeightedMean()
    for number in range(1, 400):
        plain.append(torch.tensor(1 / number), weight=number)
        tensors.append(torch.tensor(1 / number), weight=torch.tensor(number))  # type: ignore[arg-type]

    assert tensors.value() == plain.value()


def test_a_mean_can_be_read_on_the_way() -> None:
    mean = WeightedMean()
    mean.append(torch.tensor(1.0), weight=1)
    first = mean.value()
    mean.append(torch.tensor(2.0), weight=1)

    assert (first, mean.value()) == (1.0, 1.5)


def test_a_mean_of_more_values_than_fit_the_list_is_right() -> None:
    mean = WeightedMean()
    for value in range(DeferredScalars.limit * 2 + 1):
        mean.append(torch.tensor(float(value)), weight=1)

    assert mean.value() == DeferredScalars.limit


@given(st.lists(st.tuples(st.floats(-100, 100, width=32), st.integers(1, 9)), min_size=1, max_size=20))
def test_a_mean_is_the_sum_over_examples_by_their_number(batches: list[tuple[float, int]]) -> None:
    mean = WeightedMean()
    for value, size in batches:
        mean.append(torch.tensor(value), weight=size)

    expected = math.fsum(value * size for value, size in batches) / sum(size for _, size in batches)
    assert mean.value() == pytest.approx(expected, abs=1e-9)


def test_totals_of_two_halves_give_the_mean_of_the_whole() -> None:
    first, second, whole = WeightedMean(), WeightedMean(), WeightedMean()
    for half, value, weight in ((first, 1.0, 3), (first, 2.5, 4), (second, 7.0, 1)):
        half.append(torch.tensor(value), weight)
        whole.append(torch.tensor(value), weight)

    assert mean_of_parts(first.totals(), second.totals()) == whole.value() == 2.5


def test_a_half_without_values_adds_nothing() -> None:
    mean = WeightedMean()
    mean.append(torch.tensor(3.0), weight=2)

    assert mean_of_parts(mean.totals(), WeightedMean().totals()) == 3.0


def test_the_mean_of_tensors_is_not_read() -> None:
    nothing = torch.zeros((), device="meta")  # which cannot be read

    assert mean_of(nothing, nothing).is_meta


def test_the_mean_of_tensors_without_weight_is_a_tensor_that_is_nan() -> None:
    found = mean_of(torch.zeros((), dtype=torch.float64), 0)

    assert (found.dtype, found.isnan().item()) == (torch.float64, True)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_a_moving_average_of_values_in_16_bits_moves_by_less_than_they_can_tell_apart(dtype: torch.dtype) -> None:
    average = ExponentialMovingAverage(share=0.001)
    for value in [1.0] * 1000 + [1.5] * 1000:
        average.append(torch.tensor(value, dtype=dtype))

    assert average.value is not None
    assert average.value.item() == pytest.approx(1.5 - 0.5 * 0.999**1000, rel=1e-4)


def test_the_mean_of_whole_numbers_in_tensors_keeps_their_digits() -> None:
    assert mean_of(torch.tensor(2**24 + 1), 1).item() == 2**24 + 1
