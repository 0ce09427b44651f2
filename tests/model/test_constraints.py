from __future__ import annotations

import torch

from train_manager.model.constraints import max_norm, non_negative, row_norms, unit_norm

WEIGHT = torch.tensor([[3.0, 4.0], [0.3, -0.4]])


def test_max_norm_shortens_only_the_rows_that_are_too_long() -> None:
    short = max_norm(WEIGHT, limit=1.0)
    assert torch.allclose(row_norms(short).flatten(), torch.tensor([1.0, 0.5]))
    assert short[1].equal(WEIGHT[1])  # to the bit


def test_unit_norm_makes_every_row_as_long_as_one() -> None:
    assert torch.allclose(row_norms(unit_norm(WEIGHT)), torch.ones(2, 1))


def test_unit_norm_leaves_a_row_of_zeros() -> None:
    assert unit_norm(torch.zeros(2, 3)).equal(torch.zeros(2, 3))


def test_non_negative_cuts_at_zero() -> None:
    assert non_negative(WEIGHT).equal(torch.tensor([[3.0, 4.0], [0.3, 0.0]]))


def test_a_row_of_a_convolution_is_all_that_comes_in_to_one_channel() -> None:
    assert row_norms(torch.ones(5, 2, 3, 3)).shape == (5, 1, 1, 1)


def test_a_vector_is_one_row() -> None:
    assert row_norms(torch.tensor([3.0, 4.0])).item() == 5
