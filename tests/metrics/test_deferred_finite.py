"""The first loss that is nan or infinite is found, later, without reading one in each step."""

from __future__ import annotations

import pytest
import torch

from tests.support.adding import mean_of_parts
from train_manager import NonFiniteLoss
from train_manager.metrics.averages import mean_of
from train_manager.metrics.deferred import DeferredScalars, FiniteLosses


def losses_of(*values: float, first_step: int = 1) -> FiniteLosses:
    losses = FiniteLosses(epoch=2)
    for step, value in enumerate(values, start=first_step):
        losses.append(torch.tensor(value), step)
    return losses


@pytest.mark.parametrize("value", ["nan", "inf", "-inf"])
def test_what_is_not_finite_is_named_as_it_was(value: str) -> None:
    with pytest.raises(NonFiniteLoss) as caught:
        losses_of(1.0, float(value)).check()

    assert str(caught.value) == (
        f"the loss was {value} in step 2, epoch 2, and not finite in 1 of 2 losses checked together\n"
        "  try a smaller learning rate or clipped gradients, or look at that step's batch; "
        "NonFiniteFinder() names the module"
    )


def test_the_first_of_several_is_named() -> None:
    with pytest.raises(NonFiniteLoss) as caught:
        losses_of(1.0, float("inf"), float("nan"), first_step=11).check()

    assert (caught.value.step, caught.value.epoch) == (12, 2)


def test_losses_after_a_check_have_steps_of_their_own() -> None:
    losses = losses_of(1.0, 2.0)
    losses.check()
    losses.append(torch.tensor(float("nan")), 8)

    with pytest.raises(NonFiniteLoss) as caught:
        losses.check()
    assert caught.value.step == 8


def test_the_loss_of_an_optimizer_is_named() -> None:
    losses = losses_of(1.0)
    losses.append(torch.tensor(float("nan")), 2, "generator")

    with pytest.raises(NonFiniteLoss, match="the loss of 'generator' was nan in step 2"):
        losses.check()


def test_it_says_when_there_are_so_many_that_a_look_is_due() -> None:
    losses = losses_of(*[1.0] * (DeferredScalars.limit - 1))
    assert losses.append(torch.tensor(1.0), DeferredScalars.limit)


# ---- totals ----------------------------------------------------------------------------------------------------------


def weighted(*batches: tuple[float, int]) -> FiniteLosses:
    losses = FiniteLosses(epoch=2)
    for step, (value, examples) in enumerate(batches, start=1):
        losses.append(torch.tensor(value), step, weight=examples)
    return losses


def test_totals_of_two_halves_of_the_losses_give_the_mean_of_the_whole() -> None:
    first, second, whole = weighted((1.0, 3), (2.5, 4)), weighted((7.0, 1)), weighted((1.0, 3), (2.5, 4), (7.0, 1))

    assert mean_of_parts(first.totals(), second.totals()) == mean_of(*whole.totals()) == 2.5


def test_totals_are_of_losses_that_are_finite() -> None:
    with pytest.raises(NonFiniteLoss):
        weighted((1.0, 3), (float("nan"), 4)).totals()


def test_totals_begin_with_those_of_before() -> None:
    assert FiniteLosses(2, 4.0, 8.0).totals() == (4.0, 8.0)
