"""An open epoch: the totals of its losses, from part to part and from checkpoint to checkpoint."""

from __future__ import annotations

import torch

from tests.adding import mean_of_parts
from train_manager.data.shares import Place
from train_manager.distribution.joined import Joined
from train_manager.loop.epoch import OpenEpoch, OwnEpoch, add_epochs
from train_manager.metrics.deferred import FiniteLosses


def epoch_of(*batches: tuple[float, int]) -> OpenEpoch:
    epoch = OpenEpoch()
    for step, (value, examples) in enumerate(batches, start=1):
        losses = epoch.losses_of_part(number=1)
        losses.append(torch.tensor(value), step, weight=examples)
        epoch.add(*losses.totals(), seconds=1.0)
    return epoch


def test_totals_of_two_halves_of_an_epoch_give_the_loss_of_the_whole() -> None:
    first, second, whole = epoch_of((1.0, 3), (2.5, 4)), epoch_of((7.0, 1)), epoch_of((1.0, 3), (2.5, 4), (7.0, 1))

    assert whole.metrics() == {"loss": mean_of_parts(first.totals(), second.totals())} == {"loss": 2.5}


def test_the_losses_of_several_optimizers_have_means_of_their_own() -> None:
    epoch, losses = OpenEpoch(), FiniteLosses(1)
    for step, (name, value) in enumerate([("critic", 1.0), ("generator", 5.0), ("critic", 3.0)], start=1):
        losses.append(torch.tensor(value), step, name, weight=4)
    epoch.add(*losses.totals(), 1.0, losses.by_optimizer)

    assert epoch.metrics() == {"losses/critic": 2.0, "losses/generator": 5.0}


def test_a_part_that_a_checkpoint_was_written_in_continues_with_the_losses_of_several_optimizers() -> None:
    epoch, resumed = OpenEpoch(by_optimizer={"critic": (1.0, 1.0)}), OpenEpoch()
    state = epoch.state_dict(FiniteLosses(1, by_optimizer={"critic": (3.0, 1.0)}), is_open=True)
    resumed.load_state_dict(state)
    losses = resumed.losses_of_part(number=1)
    losses.append(torch.tensor(5.0), 3, "critic", weight=1)
    resumed.add(*losses.totals(), 1.0, losses.by_optimizer)

    assert state["by_optimizer"] == [{"critic": [1.0, 1.0]}, {"critic": [3.0, 1.0]}]
    assert resumed.metrics() == {"losses/critic": 3.0}


def test_the_sum_of_the_states_of_several_ranks_has_the_losses_of_all() -> None:
    first = OpenEpoch(total=1.0, examples=2.0, seconds=3.0, by_optimizer={"critic": (1.0, 1.0)})
    second = OpenEpoch(total=4.0, examples=1.0, seconds=9.0)
    parts = FiniteLosses(1, 2.0, 3.0), FiniteLosses(1, 5.0, 1.0, {"critic": (4.0, 2.0), "generator": (0.5, 1.0)})

    found = add_epochs([one.state_dict(part, is_open=True) for one, part in zip((first, second), parts, strict=True)])

    assert found == {
        "total": 5.0,
        "examples": 3.0,
        "seconds": 3.0,  # of the first one: they took them at the same time
        "part": [7.0, 4.0],
        "by_optimizer": [{"critic": [1.0, 1.0]}, {"critic": [4.0, 2.0], "generator": [0.5, 1.0]}],
    }
    assert add_epochs([]) == OpenEpoch().state_dict(FiniteLosses(1), is_open=True)


def test_a_further_rank_begins_with_no_losses_in_the_batches_of_an_own_epoch() -> None:
    own, resumed = OwnEpoch("", 1), OwnEpoch("", 1)
    own.losses.append(torch.tensor(2.0), 1, weight=4)
    own.batches = 3

    resumed.load_state_dict(own.state_dict(), 1, Joined(Place(1, 2), timeout=1))

    assert (resumed.batches, resumed.losses.totals(), resumed.epoch.is_left) == (3, (0.0, 0.0), True)


def test_an_epoch_without_examples_has_no_metrics() -> None:
    assert OpenEpoch().metrics() == {}


def test_a_part_continues_with_the_totals_that_a_checkpoint_has_of_it() -> None:
    epoch = OpenEpoch()
    epoch.load_state_dict({"total": 1.0, "examples": 2.0, "seconds": 3.0, "part": [4.0, 8.0]})

    assert epoch.losses_of_part(number=1).totals() == (4.0, 8.0)


def test_a_checkpoint_has_the_totals_in_the_form_of_before() -> None:
    state = epoch_of((1.0, 3)).state_dict(FiniteLosses(1, 4.0, 8.0), is_open=True)

    assert state == {"total": 3.0, "examples": 3.0, "seconds": 1.0, "part": [4.0, 8.0]}
