"""Curves: every point while they are short, means of neighbours when they are long."""

from __future__ import annotations

import math

import pytest

from train_manager.reporting.curves import MOST_POINTS, Curve, halve, mean_point


@pytest.mark.parametrize("number", [0, 1, 5, MOST_POINTS - 1, MOST_POINTS, 3 * MOST_POINTS + 1])
def test_a_curve_is_never_longer_than_the_most_points(number: int) -> None:
    curve = Curve()
    for x in range(number):
        curve.append(x, 1.0)
    assert len(curve.x) == len(curve.y) <= MOST_POINTS
    assert len(curve.x) >= min(number, MOST_POINTS // 2)


def test_a_short_curve_has_every_point_as_it_was() -> None:
    curve = Curve()
    for x in range(MOST_POINTS - 1):
        curve.append(x, x / 7)
    assert curve.x == list(range(MOST_POINTS - 1))
    assert curve.y == [x / 7 for x in range(MOST_POINTS - 1)]


def test_the_points_of_a_long_curve_are_means_of_neighbours() -> None:
    curve = Curve(most=4)
    for x in range(8):
        curve.append(x, 10 * x)
    assert (curve.x, curve.y) == ([1.5, 5.5], [15, 55])


def test_the_last_point_is_shown_though_its_neighbours_are_still_missing() -> None:
    curve = Curve(most=4)
    for x in range(9):
        curve.append(x, 10 * x)
    assert (curve.x[-1], curve.y[-1]) == (8, 80)


def test_a_curve_that_resumes_from_its_state_is_the_same_as_one_that_never_stopped() -> None:
    whole, first, second = Curve(most=4), Curve(most=4), Curve(most=4)
    for x in range(23):
        whole.append(x, x)
        if x == 12:
            second.load_state_dict(first.state_dict())
        (first if x < 12 else second).append(x, x)
    assert second.state_dict() == whole.state_dict()


def test_means_leave_out_what_is_not_finite() -> None:
    assert mean_point([(1, math.nan), (2, 3.0), (3, math.inf)]) == (2, 3.0)


def test_a_mean_of_nothing_finite_is_a_gap() -> None:
    assert math.isnan(mean_point([(1, math.nan), (2, -math.inf)])[1])


def test_halving_keeps_an_odd_last_point() -> None:
    assert halve([(0, 0), (1, 2), (2, 8)]) == [(0.5, 1), (2, 8)]
