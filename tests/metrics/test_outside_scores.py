"""The scores of foreign examples against the formulae, and the area under the curve against all pairs."""

from __future__ import annotations

import math

import pytest
import torch

from train_manager.metrics.outside_scores import auroc, energy, max_softmax

LOGITS = torch.tensor([[1.0, 2.0, -1.0], [0.0, 0.0, 0.0]], dtype=torch.float64)


@pytest.mark.parametrize("temperature", [1.0, 2.5])
def test_the_energy_is_that_of_the_formula(temperature: float) -> None:
    rows = [[math.exp(value / temperature) for value in row] for row in LOGITS.tolist()]

    assert energy(LOGITS, temperature).tolist() == pytest.approx(
        [-temperature * math.log(sum(row)) for row in rows], abs=1e-6
    )


@pytest.mark.parametrize("temperature", [1.0, 2.5])
def test_max_softmax_is_one_minus_the_largest_probability(temperature: float) -> None:
    rows = [[math.exp(value / temperature) for value in row] for row in LOGITS.tolist()]

    assert max_softmax(LOGITS, temperature).tolist() == pytest.approx(
        [1 - max(row) / sum(row) for row in rows], abs=1e-6
    )


def test_large_logits_do_not_overflow() -> None:
    assert energy(torch.tensor([[1e4, -1e4]])).tolist() == [-1e4]


def test_auroc_is_the_share_of_pairs_in_order_with_ties_as_halves() -> None:
    generator = torch.Generator().manual_seed(0)
    inside, outside = (torch.randint(0, 9, (n,), generator=generator).float() for n in (17, 23))
    pairs = [(a > b) + 0.5 * (a == b) for a in outside.tolist() for b in inside.tolist()]

    assert auroc(inside, outside) == pytest.approx(sum(pairs) / len(pairs))
