"""Gradients: zeroed by the step, not learnt from if they were there before, gathered where the step is left out."""

from __future__ import annotations

import torch
from torch import Tensor

from tests.support.training import At, make_batches, weights
from train_manager import modifies
from train_manager.testing import tiny_manager


def test_gradients_are_zeroed_when_the_optimizer_has_stepped() -> None:
    grads: list[list[Tensor | None]] = []
    tiny_manager(
        At(
            "post_train_optimizer_step",
            lambda train_manager: grads.append([p.grad for p in train_manager.model.parameters()]),
        )
    ).train()

    assert grads == [[None] * 4] * 3


def test_gradients_that_were_there_before_a_run_are_not_learnt_from() -> None:
    clean, stained = tiny_manager(), tiny_manager()
    stained.model(torch.ones(1, 2)).sum().backward()
    clean.train()
    stained.train()

    assert torch.equal(weights(clean.model), weights(stained.model))


def test_gradients_gather_where_the_update_is_left_out() -> None:
    """Three batches of one example give the update of one batch of three."""
    x, y = make_batches(1, size=3)[0]
    gathered = tiny_manager(
        At("pre_train_step_batch", modifies("update_ends")(lambda last_batch: last_batch)),
        At("pre_train_backward", lambda fixtures: fixtures.modify("backward_loss", fixtures["loss"] / 3)),
        train_data=[(x[n : n + 1], y[n : n + 1]) for n in range(3)],
    )
    at_once = tiny_manager(train_data=[(x, y)])
    gathered.train()
    at_once.train()

    assert gathered.update_num == 1
    torch.testing.assert_close(weights(gathered.model), weights(at_once.model))
