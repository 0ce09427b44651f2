"""Scalars of many steps, copied to the host together."""

from __future__ import annotations

import weakref

import pytest
import torch

from tests.support.host_reads import HostReads
from train_manager.metrics.deferred import DeferredScalars, numbers
from train_manager.telling.errors import InputError


def test_a_value_is_kept_without_its_graph() -> None:
    weight = torch.ones(1, requires_grad=True)
    hidden = weight * 2
    graph = weakref.ref(hidden)
    deferred = DeferredScalars()
    deferred.append(hidden.pow(2).sum())  # whose graph keeps `hidden`
    del hidden

    assert graph() is None


def test_a_value_that_is_overwritten_later_stays_as_it_was() -> None:
    """A CUDA graph writes each step's loss into the same memory."""
    deferred, buffer = DeferredScalars(), torch.zeros(())
    for value in (1.0, 2.0):
        deferred.append(buffer.fill_(value))

    assert deferred.take() == [1.0, 2.0]


def test_a_scalar_that_is_a_view_does_not_keep_the_rest_alive() -> None:
    deferred = DeferredScalars()
    deferred.append(torch.ones(1000)[0])

    assert deferred._scalars[0].untyped_storage().nbytes() == 4


def test_appending_reads_nothing_on_the_host() -> None:
    deferred = DeferredScalars()
    with HostReads() as reads:
        for _ in range(deferred.limit):
            deferred.append(torch.tensor(1.0))

    assert reads.count == 0


def test_it_is_full_at_its_limit() -> None:
    deferred = DeferredScalars()
    fullness = [deferred.append(torch.tensor(0.0)) for _ in range(deferred.limit)]

    assert (any(fullness[:-1]), fullness[-1]) == (False, True)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64, torch.int64])
def test_scalars_of_every_type_are_taken(dtype: torch.dtype) -> None:
    deferred = DeferredScalars()
    deferred.append(torch.tensor(2, dtype=dtype))

    assert deferred.take() == [2]


def test_a_scalar_that_was_changed_in_place_since_is_an_error_and_no_wrong_number() -> None:
    losses, loss = DeferredScalars(), torch.tensor(1.0)
    losses.append(loss)
    loss.mul_(2)
    with pytest.raises(InputError) as error:
        losses.take()
    assert str(error.value) == (
        "a scalar whose reading was deferred, such as the loss of a step, was changed in place\n"
        "  make a new tensor instead: loss = loss * 2, not loss.mul_(2)"
    )


def test_a_scalar_that_was_made_in_place_is_kept_though_the_first_one_was_not() -> None:
    losses, other = DeferredScalars(), torch.zeros(())
    other += 2
    losses.append(torch.tensor(1.0))
    losses.append(other)
    assert losses.take() == [1.0, 2.0]


def test_numbers_that_are_tensors_come_to_the_host_with_one_copy() -> None:
    reads = HostReads()
    with reads:
        found = numbers([torch.tensor(16), torch.tensor(8)])
    assert (found, reads.stacks, reads.count) == ([16, 8], 1, 0)


def test_other_numbers_stay_as_they_are() -> None:
    assert numbers([16, 0.5, torch.tensor(8)]) == [16, 0.5, 8]
    assert numbers([]) == []
