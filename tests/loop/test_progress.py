"""How far a training has come: what a saved state holds of an epoch that is open."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch.utils.data import TensorDataset

from tests.support.training import make_batches
from train_manager import InMemory, SeededDataLoader, TrainManager
from train_manager.testing import tiny_manager


def seeded() -> SeededDataLoader:
    x, y = (torch.cat(parts) for parts in zip(*make_batches(3), strict=True))
    return SeededDataLoader(TensorDataset(x, y), batch_size=4, shuffle=True, seed=0)


def loss_of_the_epoch(tm: TrainManager) -> float:
    return float(tm.history.epochs[-1]["loss"])


@pytest.mark.parametrize("data", [seeded, lambda: make_batches(3)], ids=["seeded", "list"])
def test_a_state_that_is_loaded_and_saved_before_an_epoch_begins_keeps_its_position(data: Any) -> None:
    tm = tiny_manager(train_data=data())
    tm.train_steps(2)
    between = tiny_manager(train_data=data())
    between.load_state_dict(tm.state_dict())
    last = tiny_manager(train_data=data())
    last.load_state_dict(between.state_dict())

    assert last.train_epochs(1).steps == 1


def test_a_state_that_is_loaded_and_saved_before_a_call_begins_is_the_same_state() -> None:
    tm = tiny_manager()
    tm.train_steps(2)
    state = tm.state_dict()
    between = tiny_manager()
    between.load_state_dict(state)

    assert {part: between.state_dict()[part] for part in ("run", "epoch", "data")} == {
        part: state[part] for part in ("run", "epoch", "data")
    }


def test_a_state_that_is_saved_between_two_calls_counts_the_losses_of_the_open_epoch_once() -> None:
    tm, other = tiny_manager(), tiny_manager()
    tm.train_steps(2)
    other.load_state_dict(tm.state_dict())
    tm.train_steps(1)
    other.train_epochs(1)

    assert loss_of_the_epoch(other) == loss_of_the_epoch(tm)


def test_batches_outside_of_epochs_are_in_no_epoch() -> None:
    tm, other = tiny_manager(), tiny_manager()
    with tm.run():
        tm.train_steps(2)
        tm.train_on_batch(make_batches(1)[0])
        other.load_state_dict(tm.state_dict())

    assert other.state_dict()["epoch"] == tm.state_dict()["epoch"]


def test_a_shallow_copy_adds_nothing_to_the_epoch_of_the_original() -> None:
    tm = tiny_manager(train_data=InMemory(*make_batches(1)[0], batch_size=4))
    tm.train_steps(1)
    before = tm.state_dict()["epoch"]["total"]
    copy.copy(tm).train_steps(1)

    assert tm.state_dict()["epoch"]["total"] == before
