from __future__ import annotations

import json
import math

import pytest
import torch

from train_manager.metrics.windows import Curve
from train_manager.runs.showing.live_losses import LiveLosses, Point, points_of, shortened, smooth


def curve_of(losses: list[tuple[float, int]]) -> Curve:
    curve = Curve()
    for step, (loss, examples) in enumerate(losses, start=1):
        curve.append(step, loss, examples)
    return curve


def test_a_picture_never_has_more_points_than_it_may() -> None:
    assert len(points_of(curve_of([(1.0, 8)] * 500))) <= 160


def test_the_points_of_a_short_curve_stay_as_they_are() -> None:
    assert points_of(curve_of([(1.0, 8), (2.0, 8)])) == [Point(1, 1.0, 8), Point(2, 2.0, 8)]


def test_a_loss_that_is_not_finite_is_left_out_of_a_mean_and_alone_a_gap() -> None:
    assert [point.value for point in shortened([Point(1, math.nan, 8), Point(2, 0.5, 8)], 1)] == [0.5]
    assert math.isnan(points_of(curve_of([(math.inf, 8)]))[0].value)
    assert math.isnan(smooth([Point(1, math.inf, 8)])[0].value)


def test_the_running_mean_is_weighted_by_examples() -> None:
    even, uneven = (smooth([Point(1, 0.0, 8), Point(2, 1.0, size)], windows=1)[1].value for size in (8, 800))

    assert even < uneven


@pytest.mark.parametrize("count", [3, 25])
def test_the_state_is_plain_and_continues_as_if_nothing_had_been(count: int) -> None:
    def taken(losses: LiveLosses, first: int, last: int) -> LiveLosses:
        losses.take([(torch.tensor(float(step)), step, 8, 0.0, "train", None) for step in range(first, last)])
        return losses

    again = LiveLosses()
    again.load_state_dict(json.loads(json.dumps(taken(LiveLosses(), 0, count).state_dict())))

    whole = taken(LiveLosses(), 0, 500)
    assert taken(again, count, 500).state_dict() == whole.state_dict()
