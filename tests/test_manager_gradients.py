"""Gradients: seen and changed by hooks between backward and step, zeroed by the step, gathered where it is left out."""

from __future__ import annotations

import torch
from torch import Tensor

from tests.support.training import At, make_batches, weights
from train_manager import TrainManager, modifies
from train_manager.testing import tiny_manager


def test_a_hook_between_backward_and_step_sees_the_gradients() -> None:
    norms: list[float] = []
    tiny_manager(
        At(
            "pre_train_optimizer_step",
            lambda train_manager: norms.append(float(train_manager.model[0].weight.grad.norm())),
        )
    ).train()

    assert all(norm > 0 for norm in norms)
    assert len(norms) == 3


def test_a_hook_between_backward_and_step_changes_the_gradients() -> None:
    def clear(train_manager: TrainManager) -> None:
        for parameter in train_manager.model.parameters():
            parameter.grad = torch.zeros_like(parameter)

    tm = tiny_manager(At("post_train_backward", clear))
    before = weights(tm.model)
    tm.train()

    assert torch.equal(weights(tm.model), before)


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


def test_gradients_that_were_made_in_a_run_before_train_are_not_learnt_from() -> None:
    clean, stained = tiny_manager(), tiny_manager()
    clean.train()
    with stained.run():
        stained.model(torch.ones(1, 2)).sum().backward()
        stained.train()

    assert torch.equal(weights(clean.model), weights(stained.model))


def test_evaluation_leaves_gradients_alone() -> None:
    tm = tiny_manager()
    tm.model(torch.ones(1, 2)).sum().backward()
    before = [parameter.grad for parameter in tm.model.parameters()]
    tm.eval()

    assert all(parameter.grad is grad for parameter, grad in zip(tm.model.parameters(), before, strict=True))


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
