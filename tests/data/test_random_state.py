"""The global random states of Python, numpy and torch: seeded together, and restored."""

from __future__ import annotations

import random

import numpy as np
import pytest
import torch

from train_manager.data.random_state import preserve_random_state, seed_all


def draw() -> tuple[float, float, float]:
    """Return one random number of each library."""
    return random.random(), float(np.random.rand()), float(torch.rand(()))


def test_a_seed_gives_the_same_numbers_again() -> None:
    seed_all(7)
    first = draw()
    seed_all(7)

    assert draw() == first


def test_another_seed_gives_other_numbers_everywhere() -> None:
    seed_all(7)
    first = draw()
    seed_all(8)

    assert all(a != b for a, b in zip(first, draw(), strict=True))


@pytest.mark.parametrize("seed", [-1, 2**32, 2**40 + 3])
def test_a_seed_that_is_too_large_for_numpy_or_negative_works(seed: int) -> None:
    seed_all(seed)
    first = draw()
    seed_all(seed)

    assert draw() == first


def test_drawing_inside_leaves_the_states_as_they_were() -> None:
    seed_all(7)
    expected = draw()
    seed_all(7)
    with preserve_random_state():
        draw()

    assert draw() == expected


def test_the_second_number_of_a_pair_that_numpy_holds_back_is_left_too() -> None:
    np.random.seed(7)
    first, second = np.random.randn(), np.random.randn()
    np.random.seed(7)
    assert np.random.randn() == first
    with preserve_random_state():
        np.random.randn(3)

    assert np.random.randn() == second


def test_the_states_are_left_as_they_were_also_after_an_error() -> None:
    seed_all(7)
    expected = draw()
    seed_all(7)
    with pytest.raises(ValueError, match="inside"), preserve_random_state():
        draw()
        raise ValueError("inside")

    assert draw() == expected


def test_the_numbers_inside_are_those_that_come_next() -> None:
    seed_all(7)
    with preserve_random_state():
        inside = draw()

    assert draw() == inside
