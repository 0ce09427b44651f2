from __future__ import annotations

import math

import pytest

from train_manager.metrics.monitor import Patience


def first_over(patience: Patience, values: list[float]) -> int | None:
    return next((index for index, value in enumerate(values) if patience.is_over(value)), None)


@pytest.mark.parametrize(
    ("mode", "values", "over"),
    [
        ("min", [5, 4, 3, 2, 1], None),
        ("min", [5, 6, 6], 2),
        ("min", [5, 6, 4, 5, 6], 4),
        ("max", [1, 2, 3], None),
        ("max", [5, 4, 5], 2),
    ],
)
def test_it_is_over_when_so_many_in_a_row_were_no_better(mode: str, values: list[float], over: int | None) -> None:
    assert first_over(Patience(2, mode), values) == over


def test_a_gain_of_min_delta_or_less_is_no_gain() -> None:
    assert first_over(Patience(1, "min", min_delta=0.5), [3, 2, 1.5]) == 2


def test_many_small_gains_add_up() -> None:
    """For they are measured against the best, not against the last."""
    assert first_over(Patience(3, "min", min_delta=0.5), [3, 2.8, 2.6, 2.4, 2.3]) is None


def test_nan_is_never_better() -> None:
    patience = Patience(2, "min")
    assert first_over(patience, [math.nan, 1, math.nan, math.nan]) == 3
    assert patience.best == 1


def test_infinity_is_a_first_value_that_anything_improves() -> None:
    assert first_over(Patience(1, "min"), [math.inf, 10]) is None
