"""An open epoch: the totals of its losses, from part to part and from checkpoint to checkpoint."""

from __future__ import annotations

import copy

import pytest
import torch

from tests.support.adding import mean_of_parts
from train_manager.data.shares import Place
from train_manager.distribution.joined import Joined
from train_manager.loop.epoch import Epoch, add_epochs


def epoch_of(*batches: tuple[float, int]) -> Epoch:
    epoch = Epoch(1)
    for step, (value, examples) in enumerate(batches, start=1):
        train_a_part(epoch, step, (None, value), weight=examples)
    return epoch


def train_a_part(epoch: Epoch, first_step: int, *losses: tuple[str | None, float], weight: int) -> None:
    epoch.begin_part(number=1)
    keep(epoch, first_step, *losses, weight=weight)
    epoch.end_part()


def keep(epoch: Epoch, first_step: int, *losses: tuple[str | None, float], weight: int) -> None:
    for step, (name, value) in enumerate(losses, start=first_step):
        epoch.losses.append(torch.tensor(value), step, name, weight)


def test_totals_of_two_halves_of_an_epoch_give_the_loss_of_the_whole() -> None:
    first, second, whole = epoch_of((1.0, 3), (2.5, 4)), epoch_of((7.0, 1)), epoch_of((1.0, 3), (2.5, 4), (7.0, 1))

    assert whole.metrics() == {"loss": mean_of_parts(first.totals(), second.totals())} == {"loss": 2.5}


def test_the_sum_of_the_states_of_several_ranks_has_the_losses_of_all() -> None:
    ended = {"critic": [1.0, 1.0]}
    first = {"total": 1.0, "examples": 2.0, "seconds": 3.0, "part": [2.0, 3.0], "by_optimizer": [ended, {}]}
    parts = {"critic": [4.0, 2.0], "generator": [0.5, 1.0]}
    second = {"total": 4.0, "examples": 1.0, "seconds": 9.0, "part": [5.0, 1.0], "by_optimizer": [{}, parts]}

    assert add_epochs([first, second]) == {
        "total": 5.0,
        "examples": 3.0,
        "seconds": 3.0,  # of the first one: they took them at the same time
        "part": [7.0, 4.0],
        "by_optimizer": [ended, parts],
    }


def test_the_sum_of_no_states_is_an_epoch_without_losses() -> None:
    counts = {"skipped": 0, "batches": 0, "batch_num": 0}

    assert add_epochs([]) | counts == Epoch(1).state_dict()


def test_a_further_rank_begins_with_no_losses_in_the_batches_of_an_own_epoch() -> None:
    own, resumed = Epoch(1), Epoch(1)
    own.begin_part(1)
    keep(own, 1, (None, 2.0), weight=4)
    own.batches = 3

    resumed.load_state_dict(own.state_dict(), Joined(Place(1, 2), timeout=1))

    assert (resumed.batches, resumed.losses.totals(), resumed.is_left) == (3, (0.0, 0.0), True)


def test_a_checkpoint_has_the_part_apart_from_the_parts_that_have_ended() -> None:
    epoch = epoch_of((1.0, 3))
    keep(epoch, 2, (None, 0.5), weight=8)
    state = epoch.state_dict()

    assert (state["total"], state["examples"], state["part"]) == (3.0, 3.0, [4.0, 8.0])


def test_the_time_of_an_epoch_is_that_of_its_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter([10.0, 11.0, 20.0, 24.0, 27.0])
    monkeypatch.setattr("train_manager.loop.epoch.perf_counter", lambda: next(clock))
    epoch = epoch_of((1.0, 3))
    epoch.begin_part(1)
    so_far = epoch.state_dict()["seconds"]
    epoch.end_part()

    assert (so_far, epoch.seconds) == (5.0, 8.0)


def test_a_copy_counts_its_losses_for_itself() -> None:
    epoch = Epoch(1)
    keep(copy.copy(epoch), 1, (None, 2.0), weight=4)

    assert epoch.losses.totals() == (0.0, 0.0)
