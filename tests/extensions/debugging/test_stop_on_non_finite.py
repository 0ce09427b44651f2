from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tests.support.host_reads import HostReads
from train_manager import Extension, InputError, NonFiniteLoss, modifies
from train_manager.extensions import StopOnNonFinite
from train_manager.testing import tiny_manager


class Breaks(Extension):
    """Make the loss of one step not finite."""

    def __init__(self, step: int, value: float = float("nan")) -> None:
        self.step = step
        self.value = value

    @modifies("loss")
    def post_train_loss_forward(self, loss: Tensor, step_num: int) -> Tensor:
        return loss * self.value if step_num + 1 == self.step else loss


def ten_batches() -> list[tuple[Tensor, Tensor]]:
    return [(torch.ones(2, 2), torch.zeros(2, dtype=torch.long))] * 10


class Detached(Extension):
    """Train on a finite value, whatever the loss is."""

    @modifies("backward_loss")
    def pre_train_backward(self, prediction: Tensor, targets: Tensor) -> Tensor:
        return nn.functional.cross_entropy(prediction, targets)


@pytest.mark.parametrize(("check_every", "steps"), [(1, 5), (2, 6), (4, 8), (100, 10)])
def test_it_checks_every_few_steps_and_names_the_first_step(check_every: int, steps: int) -> None:
    tm = tiny_manager(Breaks(5), Detached(), StopOnNonFinite(check_every), train_data=ten_batches())
    with pytest.raises(NonFiniteLoss, match="the loss was nan in step 5, epoch 1") as error:
        tm.train()
    assert (error.value.step, tm.step_num) == (5, steps)


def test_infinity_is_not_finite() -> None:
    tm = tiny_manager(Breaks(1, float("inf")), Detached(), StopOnNonFinite(1), train_data=ten_batches())
    with pytest.raises(NonFiniteLoss, match="the loss was inf in step 1"):
        tm.train()


def test_other_hooks_of_the_step_run_before() -> None:
    seen: list[int] = []
    stop = StopOnNonFinite(1)
    tm = tiny_manager(stop, Breaks(2), Detached(), train_data=ten_batches())
    tm.add_extension(post_train_step_batch=lambda step_num: seen.append(step_num))
    with pytest.raises(NonFiniteLoss):
        tm.train()
    assert seen == [1, 2]


def test_the_epoch_is_the_one_of_the_step() -> None:
    tm = tiny_manager(Breaks(15), Detached(), StopOnNonFinite(4), train_data=ten_batches(), epochs=3)
    with pytest.raises(NonFiniteLoss, match="in step 15, epoch 2") as error:
        tm.train()
    assert (error.value.epoch, tm.step_num) == (2, 18)


def test_losses_of_a_failed_run_are_not_checked_in_the_next() -> None:
    class Fails(Extension):
        def post_train_step_batch(self, step_num: int) -> None:
            if step_num == 3:
                raise ValueError("on purpose")

    tm = tiny_manager(Breaks(2), Detached(), Fails(), StopOnNonFinite(4), train_data=ten_batches())
    with pytest.raises(ValueError, match="on purpose"):
        tm.train()
    tm.train()
    assert tm.step_num == 13


def test_a_training_that_stays_finite_is_trained_to_its_end_twice() -> None:
    tm = tiny_manager(StopOnNonFinite(2), train_data=ten_batches())
    tm.train_epochs(1)
    tm.train_epochs(1)
    assert tm.step_num == 20


def test_each_check_waits_for_the_device_once() -> None:
    stop = StopOnNonFinite(3)
    with HostReads() as copies:
        for step in range(7):
            stop.post_train_step_batch(loss=torch.tensor(1.0), step_num=step + 1, epoch_num=0)
    assert (copies.count, copies.stacks) == (0, 2)


@pytest.mark.parametrize("value", [0, 1.5, "10", True])
def test_an_invalid_check_every_is_refused(value: Any) -> None:
    with pytest.raises(InputError) as error:
        StopOnNonFinite(value)
    assert str(error.value) == f"check_every must be a whole number of at least 1, but is {value!r}"
