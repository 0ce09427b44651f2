"""Scalars of many steps, copied to the host together."""

from __future__ import annotations

import math
import weakref

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from tests.host_reads import HostReads
from train_manager.core.errors import InputError
from train_manager.metrics.averages import WeightedMean
from train_manager.metrics.deferred import HeldScalars


def test_values_come_oldest_first() -> None:
    held = HeldScalars()
    for value in (3.0, 1.0, 2.0):
        held.append(torch.tensor(value))

    assert held.take() == [3.0, 1.0, 2.0]


def test_nothing_is_held_after_they_are_taken() -> None:
    held = HeldScalars()
    held.append(torch.tensor(1.0))
    held.take()

    assert (len(held), held.take()) == (0, [])


def test_a_value_is_held_without_its_graph() -> None:
    weight = torch.ones(1, requires_grad=True)
    hidden = weight * 2
    graph = weakref.ref(hidden)
    held = HeldScalars()
    held.append(hidden.pow(2).sum())  # whose graph keeps `hidden`
    del hidden

    assert graph() is None


def test_a_value_that_is_overwritten_later_stays_as_it_was() -> None:
    """A CUDA graph writes each step's loss into the same memory."""
    held, buffer = HeldScalars(), torch.zeros(())
    for value in (1.0, 2.0):
        held.append(buffer.fill_(value))

    assert held.take() == [1.0, 2.0]


def test_a_scalar_that_is_a_view_does_not_keep_the_rest_alive() -> None:
    held = HeldScalars()
    held.append(torch.ones(1000)[0])

    assert held._held[0].untyped_storage().nbytes() == 4


def test_appending_reads_nothing_on_the_host() -> None:
    held = HeldScalars()
    with HostReads() as reads:
        for _ in range(held.limit):
            held.append(torch.tensor(1.0))

    assert reads.count == 0


def test_it_is_full_at_its_limit() -> None:
    held = HeldScalars()
    fullness = [held.append(torch.tensor(0.0)) for _ in range(held.limit)]

    assert (any(fullness[:-1]), fullness[-1]) == (False, True)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64, torch.int64])
def test_scalars_of_every_type_are_taken(dtype: torch.dtype) -> None:
    held = HeldScalars()
    held.append(torch.tensor(2, dtype=dtype))

    assert held.take() == [2]


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


def test_a_mean_can_be_read_on_the_way() -> None:
    mean = WeightedMean()
    mean.append(torch.tensor(1.0), weight=1)
    first = mean.value()
    mean.append(torch.tensor(2.0), weight=1)

    assert (first, mean.value()) == (1.0, 1.5)


def test_a_mean_of_more_than_it_holds_at_once_is_right() -> None:
    mean = WeightedMean()
    for value in range(HeldScalars.limit * 2 + 1):
        mean.append(torch.tensor(float(value)), weight=1)

    assert mean.value() == HeldScalars.limit


@given(st.lists(st.tuples(st.floats(-100, 100, width=32), st.integers(1, 9)), min_size=1, max_size=20))
def test_a_mean_is_the_sum_over_examples_by_their_number(batches: list[tuple[float, int]]) -> None:
    mean = WeightedMean()
    for value, size in batches:
        mean.append(torch.tensor(value), weight=size)

    expected = math.fsum(value * size for value, size in batches) / sum(size for _, size in batches)
    assert mean.value() == pytest.approx(expected, abs=1e-9)


def test_a_scalar_that_was_changed_in_place_since_is_an_error_and_no_wrong_number() -> None:
    losses, loss = HeldScalars(), torch.tensor(1.0)
    losses.append(loss)
    loss.mul_(2)
    with pytest.raises(InputError) as error:
        losses.take()
    assert str(error.value) == (
        "a scalar that was kept to be read later, such as the loss of a step, was changed in place since\n"
        "  make a new one instead: loss = loss * 2, not loss.mul_(2)"
    )


def test_a_scalar_in_memory_that_is_written_again_and_again_is_copied() -> None:
    losses, memory = HeldScalars(), torch.zeros(())
    for number in (1.0, 2.0, 3.0):
        losses.append(memory.fill_(number))
    assert losses.take() == [1.0, 2.0, 3.0]


def test_a_scalar_that_was_made_in_place_is_kept_though_the_first_one_was_not() -> None:
    losses, other = HeldScalars(), torch.zeros(())
    other += 2
    losses.append(torch.tensor(1.0))
    losses.append(other)
    assert losses.take() == [1.0, 2.0]
