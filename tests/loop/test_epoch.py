"""An open epoch: the totals of its losses, from part to part and from checkpoint to checkpoint."""

from __future__ import annotations

import torch

from tests.adding import mean_of_parts
from train_manager.loop.epoch import OpenEpoch
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

    assert whole.figures() == {"loss": mean_of_parts(first.totals(), second.totals())} == {"loss": 2.5}


def test_the_losses_of_several_optimizers_have_means_of_their_own() -> None:
    epoch, losses = OpenEpoch(), FiniteLosses(1)
    for step, (name, value) in enumerate([("critic", 1.0), ("generator", 5.0), ("critic", 3.0)], start=1):
        losses.append(torch.tensor(value), step, name, weight=4)
    epoch.add(*losses.totals(), 1.0, losses.by_optimizer)

    assert epoch.figures() == {"losses/critic": 2.0, "losses/generator": 5.0}


def test_a_part_that_a_checkpoint_was_written_in_goes_on_with_the_losses_of_several_optimizers() -> None:
    epoch, resumed = OpenEpoch(by_optimizer={"critic": (1.0, 1.0)}), OpenEpoch()
    state = epoch.state_dict(FiniteLosses(1, by_optimizer={"critic": (3.0, 1.0)}), is_open=True)
    resumed.load_state_dict(state)
    losses = resumed.losses_of_part(number=1)
    losses.append(torch.tensor(5.0), 3, "critic", weight=1)
    resumed.add(*losses.totals(), 1.0, losses.by_optimizer)

    assert state["by_optimizer"] == [{"critic": [1.0, 1.0]}, {"critic": [3.0, 1.0]}]
    assert resumed.figures() == {"losses/critic": 3.0}


def test_an_epoch_without_examples_has_no_figures() -> None:
    assert OpenEpoch().figures() == {}


def test_a_part_goes_on_with_the_totals_that_a_checkpoint_has_of_it() -> None:
    epoch = OpenEpoch()
    epoch.load_state_dict({"total": 1.0, "examples": 2.0, "seconds": 3.0, "part": [4.0, 8.0]})

    assert epoch.losses_of_part(number=1).totals() == (4.0, 8.0)


def test_a_checkpoint_has_the_totals_in_the_form_of_before() -> None:
    state = epoch_of((1.0, 3)).state_dict(FiniteLosses(1, 4.0, 8.0), is_open=True)

    assert state == {"total": 3.0, "examples": 3.0, "seconds": 1.0, "part": [4.0, 8.0]}
