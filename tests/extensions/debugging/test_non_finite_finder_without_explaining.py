"""`NonFiniteFinder(explain=False)`: the step alone, which costs next to nothing."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from tests.extensions.debugging.breaking import NAN, breaking, error_of, log
from tests.support.host_reads import HostReads
from train_manager import Extension, NonFiniteLoss, modifies
from train_manager.extensions import (
    NonFiniteFinder,
)
from train_manager.testing import tiny_manager

# ---- without an explanation ------------------------------------------------------------------------------------------


class BreaksTheLoss(Extension):
    """Make the loss of one step not finite."""

    def __init__(self, step: int, value: float = NAN) -> None:
        self.step, self.value = step, value

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
    tm = tiny_manager(
        BreaksTheLoss(5), Detached(), NonFiniteFinder(check_every, explain=False), train_data=ten_batches()
    )
    with pytest.raises(NonFiniteLoss, match="the loss was nan in step 5, epoch 1") as error:
        tm.train()
    assert (error.value.step, tm.step_num) == (5, steps)


def test_the_epoch_is_the_one_of_the_step() -> None:
    tm = tiny_manager(
        BreaksTheLoss(15), Detached(), NonFiniteFinder(4, explain=False), train_data=ten_batches(), epochs=3
    )
    with pytest.raises(NonFiniteLoss, match="in step 15, epoch 2") as error:
        tm.train()
    assert (error.value.epoch, tm.step_num) == (2, 16)


def test_losses_of_a_failed_run_are_not_checked_in_the_next() -> None:
    class Fails(Extension):
        def post_train_step_batch(self, step_num: int) -> None:
            if step_num == 3:
                raise ValueError("on purpose")

    tm = tiny_manager(
        BreaksTheLoss(2), Detached(), Fails(), NonFiniteFinder(4, explain=False), train_data=ten_batches()
    )
    with pytest.raises(ValueError, match="on purpose"):
        tm.train()
    tm.train()
    assert tm.step_num == 13


def test_each_check_waits_for_the_device_once() -> None:
    def reads(*extensions: Extension) -> tuple[int, int]:
        with HostReads() as copies:
            tiny_manager(*extensions, train_data=ten_batches()).train()
        return copies.count, copies.stacks

    count, stacks = reads()
    assert reads(NonFiniteFinder(3, explain=False)) == (count, stacks + 3)


def test_an_explaining_one_finds_the_module_beside_one_that_does_not_explain() -> None:
    error = error_of(breaking(log, 1, NonFiniteFinder(1, explain=False), NonFiniteFinder()))

    assert "module '0.1' (Breaks)" in error.what
