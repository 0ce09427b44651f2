"""Series in windows: how many there are, what is in them, and that a full window never changes."""

from __future__ import annotations

import math
from random import Random

import numpy as np
import pytest

from train_manager.metrics.windows import (
    AT_ONCE,
    SINGLE,
    GrowingCurve,
    SeriesWindows,
    WindowedSeries,
    thin_out,
    width_after,
)


def steps_of(values: list[list[float]], *, first: int = 1, weight: float = 16) -> SeriesWindows:
    steps = range(first, first + len(values))
    return SeriesWindows.single([*steps], [weight] * len(values), np.array(values, np.float32))


def random_values(steps: int, values: int) -> list[list[float]]:
    random = Random(0)
    return [[random.gauss(0, 1) for _ in range(values)] for _ in range(steps)]


def curve_of(values: list[float]) -> GrowingCurve:
    curve = GrowingCurve()
    for x, y in enumerate(values, start=1):
        curve.append(x, y)
    return curve


def test_a_long_training_has_some_4_300_windows() -> None:
    steps = windows = 0
    while steps + width_after(windows) <= 100_000:
        steps += width_after(windows)
        windows += 1

    assert windows == 4281


@pytest.mark.parametrize("values", [1, 3])
@pytest.mark.parametrize("pieces", [1, 7, 64, 1024])
def test_windows_are_the_same_to_the_bit_in_whatever_pieces_the_steps_come(values: int, pieces: int) -> None:
    rows = random_values(4000, values)
    whole, found = WindowedSeries(values), WindowedSeries(values)
    whole.extend(steps_of(rows))
    for first in range(0, len(rows), pieces):
        found.extend(steps_of(rows[first : first + pieces], first=first + 1))

    for one, other in zip((*found.full, *found.open), (*whole.full, *whole.open), strict=True):
        assert np.array_equal(one, other)


def test_a_full_window_never_changes() -> None:
    rows = random_values(9000, 2)
    series = WindowedSeries(2)
    series.extend(steps_of(rows[:3000]))
    before = series.full
    series.extend(steps_of(rows[3000:], first=3001))

    for one, other in zip(series.full.part(0, len(before.steps)), before, strict=True):
        assert np.array_equal(one, other)


# ---- curves ----------------------------------------------------------------------------------------------------------


def test_the_first_thousand_points_of_a_curve_are_as_they_were() -> None:
    curve = curve_of([x / 7 for x in range(1, SINGLE + 1)])

    assert curve.x == list(range(1, SINGLE + 1))
    assert curve.y == [x / 7 for x in range(1, SINGLE + 1)]


def test_the_windows_of_a_long_curve_are_means_of_neighbours_at_the_last_of_them() -> None:
    windows = curve_of([10 * x for x in range(1, SINGLE + 5)]).windows()

    assert windows.steps[SINGLE:].tolist() == [SINGLE + 2, SINGLE + 4]
    assert windows.means[SINGLE:, 0].tolist() == [10 * SINGLE + 15, 10 * SINGLE + 35]


@pytest.mark.parametrize("number", [0, 1, SINGLE - 1, SINGLE, SINGLE + 1, 2001, 2501, 64_000])
def test_a_curve_shows_at_most_a_thousand_points(number: int) -> None:
    curve = curve_of([1.0] * number)

    assert len(curve.x) == len(curve.y) <= SINGLE
    assert len(curve.x) >= min(number, SINGLE // 2)


def test_the_points_of_a_curve_stand_for_equally_many_steps_each() -> None:
    assert set(np.diff(curve_of([1.0] * 64_000).x)) == {64}


def test_the_last_point_is_shown_though_its_neighbours_are_still_missing() -> None:
    curve = curve_of([10 * x for x in range(1, SINGLE + 4)])

    assert (curve.x[-1], curve.windows().means[-1, 0]) == (SINGLE + 3, 10 * (SINGLE + 3))


@pytest.mark.parametrize("stop", [0, 1, 12, 1501, AT_ONCE, AT_ONCE + 1])
def test_a_curve_that_resumes_from_its_state_is_the_same_as_one_that_never_stopped(stop: int) -> None:
    values = [value for (value,) in random_values(2 * AT_ONCE, 1)]
    whole, first, second = GrowingCurve(), GrowingCurve(), GrowingCurve()
    for x, value in enumerate(values):
        whole.append(x, value)
        if x == stop:
            second.load_state_dict(first.state_dict())
            assert (second.x, second.y) == (first.x, first.y)
        (first if x < stop else second).append(x, value)

    assert second.state_dict() == whole.state_dict()


def test_reading_a_curve_does_not_change_it() -> None:
    read, unread = GrowingCurve(), GrowingCurve()
    for x, (value,) in enumerate(random_values(3000, 1)):
        read.append(x, value)
        unread.append(x, value)
        if x % 100 == 0:
            assert len(read.x) == len(read.y)

    assert read.state_dict() == unread.state_dict()


def test_means_leave_out_what_is_not_finite() -> None:
    assert curve_of([1.0] * SINGLE + [math.inf, 3.0]).windows().means[-1, 0] == 3.0


def test_a_mean_of_nothing_finite_is_a_gap() -> None:
    assert math.isnan(curve_of([1.0] * SINGLE + [math.nan, -math.inf]).windows().means[-1, 0])


# ---- fewer points for a picture --------------------------------------------------------------------------------------


def test_a_picture_of_a_long_training_has_few_points() -> None:
    lengths = [len(thin_out(curve_of([1.0] * count).windows(), 10).steps) for count in range(1, 200)]

    assert max(lengths) == 10
    assert min(lengths[10:]) >= 4


def test_a_thinned_series_keeps_the_mean_of_all() -> None:
    windows = thin_out(curve_of([*range(5000)]).windows(), 400)

    assert len(windows.steps) <= 400
    assert windows.weights.sum() == 5000
    assert (windows.means[:, 0] * windows.weights).sum() / 5000 == pytest.approx(2499.5)


def test_the_last_smaller_batch_of_an_epoch_is_no_spike() -> None:
    curve = GrowingCurve()
    for step in range(1, 21):
        is_last = step % 5 == 0
        curve.append(step, 50.0 if is_last else 1.0, 3 if is_last else 64)

    assert max(thin_out(curve.windows(), 400).means[:, 0]) < 5


def test_an_empty_series_is_thinned_to_an_empty_one() -> None:
    assert len(thin_out(GrowingCurve().windows(), 400).steps) == 0
