"""Steps that ``train_batch`` asks for in some batches only, and several times in one."""

from __future__ import annotations

from typing import Any

import pytest
from torch import Tensor
from torch.optim import SGD

from tests.support.training import make_batches
from train_manager import Extension, TrainManager, modifies
from train_manager.testing import tiny_manager


class InPairs(Extension):
    """Let windows end with every second batch."""

    @modifies("update_ends")
    def pre_train_step_batch(self, step_num: int) -> bool:
        return step_num % 2 == 1


class Sometimes(TrainManager):
    """Update only in some batches of the epoch, counted from 1, so often."""

    updates: dict[int, int]

    def train_batch(self, model: Any, inputs: Tensor, batch_num: int) -> None:
        for _ in range(self.updates.get(batch_num, 0)):
            self.update(model(inputs).square().mean())


def sometimes(updates: dict[int, int], batches: int = 4) -> TrainManager:
    model = tiny_manager().model
    tm = Sometimes(
        model=model, optimizer=SGD(model.parameters(), lr=0.1), train_data=make_batches(batches), extensions=[InPairs()]
    )
    tm.updates = updates
    return tm


def test_a_step_within_a_window_waits_until_it_is_asked_for_in_a_batch_that_ends_one() -> None:
    tm, steps = sometimes({1: 1, 3: 1, 4: 1}), []
    tm.add_extension(post_train_optimizer_step=lambda batch_num: steps.append(batch_num))
    tm.train()
    model = tiny_manager().model
    optimizer = SGD(model.parameters(), lr=0.1)
    for number, (inputs, _) in enumerate(make_batches(4), start=1):
        if number != 2:
            model(inputs).square().mean().backward()
    optimizer.step()
    assert steps == [4]
    assert all(one.equal(other) for one, other in zip(tm.model.parameters(), model.parameters(), strict=True))


def test_a_step_that_no_batch_with_the_end_of_a_window_asks_for_is_told_as_the_run_ends() -> None:
    with pytest.warns(UserWarning, match="the run ended within a window, so the gradients gathered for 'optimizer'"):
        sometimes({1: 1, 3: 1}).train()


def test_a_backward_without_a_step_waits_until_a_step_is_asked_for() -> None:
    class Own(TrainManager):
        def train_batch(self, model: Any, inputs: Tensor, batch_num: int) -> None:
            self.backward(model(inputs).square().mean())
            if batch_num == 3:
                self.step()

    model, steps = tiny_manager().model, []
    tm = Own(model=model, optimizer=SGD(model.parameters(), lr=0.1), train_data=make_batches(3))
    tm.add_extension(post_train_optimizer_step=lambda batch_num: steps.append(batch_num))
    tm.train()
    assert steps == [3]
