"""Losses that compare examples with the targets of others, and losses that only count them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from train_manager.checks.loss_leak import check_loss_leak

ROWS = torch.Generator().manual_seed(0)
LOGITS = torch.randn(8, 5, generator=ROWS)
NUMBERS = torch.randn(8, 1, generator=ROWS)
WORDS = torch.tensor([[1, 2, 0, 0], [3, 4, 1, 0], [2, 0, 0, 0], [4, 4, 3, 2], [1, 0, 0, 0], [2, 2, 2, 0]])


def squared(one: Tensor, other: Tensor) -> Tensor:
    return (one - other).square().mean()


def contrastive(one: Tensor, other: Tensor) -> Tensor:
    return F.cross_entropy(F.normalize(one) @ F.normalize(other).T, torch.arange(len(one)))


CLEAN: dict[str, tuple[Callable[..., Any], Any, Any]] = {
    "cross entropy": (F.cross_entropy, LOGITS, torch.arange(8) % 5),
    "class weights": (nn.CrossEntropyLoss(weight=torch.arange(1.0, 6)), LOGITS, torch.arange(8) % 5),
    "a mean over words": (
        lambda logits, words: F.cross_entropy(logits.flatten(0, 1), words.flatten(), ignore_index=0),
        torch.randn(6, 4, 5, generator=ROWS),
        WORDS,
    ),
    "a root": (lambda one, other: squared(one, other).sqrt(), NUMBERS, NUMBERS + 1),
    "two heads": (
        lambda both, target: F.cross_entropy(both["kind"], target) + both["size"].square().sum(),
        {"kind": LOGITS, "size": NUMBERS},
        torch.arange(8) % 5,
    ),
    "binary": (nn.BCEWithLogitsLoss(), NUMBERS, (NUMBERS > 0).float()),
    "a huber loss of rows": (nn.SmoothL1Loss(), LOGITS, LOGITS.flip(0)),
}


@pytest.mark.parametrize("name", CLEAN)
def test_a_loss_of_each_example_by_itself_is_clean(name: str) -> None:
    found = check_loss_leak(*CLEAN[name])

    found.require_none()
    assert not found


def test_a_column_against_a_row_is_an_error_that_tells_the_shapes() -> None:
    found = check_loss_leak(squared, NUMBERS, NUMBERS.squeeze(1) + 1)

    assert str(found[0]) == (
        "error: the loss compares each prediction with the targets of all examples: (8, 1) against (8,) "
        "[stretched-targets]\n"
        "  where  the loss\n"
        "  do     give both one shape: targets.view_as(predictions)"
    )


@pytest.mark.parametrize(
    ("loss", "targets"),
    [
        (contrastive, LOGITS.flip(1)),
        (lambda one, other: squared(one - one.mean(0), other), LOGITS.flip(1)),
        (lambda one, other: squared(one, other.flip(0)), LOGITS.flip(1)),
    ],
    ids=["contrastive", "centred", "flipped"],
)
def test_a_loss_that_compares_the_examples_with_each_other_is_a_note(loss: Any, targets: Tensor) -> None:
    found = check_loss_leak(loss, LOGITS, targets)

    assert [one.level for one in found] == ["note"]
    assert found.is_clean


@pytest.mark.parametrize(
    ("loss", "predictions", "reason"),
    [
        (squared, torch.randn(1, 3), "there are less than two examples"),
        (lambda one, other: one.detach().sum(), torch.randn(4, 3), "the loss has no gradient at the predictions"),
    ],
)
def test_a_loss_that_cannot_be_looked_at_is_not_clean(loss: Any, predictions: Tensor, reason: str) -> None:
    found = check_loss_leak(loss, predictions, predictions + 1)

    assert not found.is_clean
    assert [one.text for one in found.covered] == [reason]


def test_the_state_of_a_loss_is_as_before() -> None:
    class Averaged(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.mean = 0.0

        def forward(self, one: Tensor, other: Tensor) -> Tensor:
            loss = squared(one, other) * torch.rand(())
            self.mean += float(loss.detach())
            return loss

    loss, state = Averaged(), torch.get_rng_state()
    check_loss_leak(loss, NUMBERS, NUMBERS + 1)

    assert loss.mean == 0
    assert torch.equal(state, torch.get_rng_state())
