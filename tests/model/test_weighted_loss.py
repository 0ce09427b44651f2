"""The loss of one of several processes, weighted by its part of the batch."""

from __future__ import annotations

import torch

from train_manager.model.weighted_loss import WeightedLoss


def test_the_weights_of_all_processes_have_a_mean_of_one() -> None:
    losses = [WeightedLoss(number=2) for _ in range(2)]
    for loss, examples in zip(losses, (6, 2), strict=True):
        loss.set_share(examples, of=8)

    assert [loss.weight for loss in losses] == [1.5, 0.5]


def test_the_loss_of_a_batch_of_which_no_process_has_examples_is_zero() -> None:
    loss = WeightedLoss(number=2)
    loss.set_share(0, of=0)

    assert loss.weigh(torch.tensor(3.0)).item() == 0.0


def test_a_loss_of_equal_parts_is_the_same_object() -> None:
    loss, given = WeightedLoss(number=2), torch.tensor(3.0)
    loss.set_share(4, of=8)

    assert loss.weigh(given) is given
