from __future__ import annotations

import json
import math

import pytest
import torch

from train_manager.loop.batch_losses import BatchRow
from train_manager.metrics.windows import GrowingCurve
from train_manager.runs.showing.live_losses import LiveLosses, Point, points_by_curve, points_of, shortened, smooth


def curve_of(losses: list[tuple[float, int]]) -> GrowingCurve:
    curve = GrowingCurve()
    for step, (loss, examples) in enumerate(losses, start=1):
        curve.append(step, loss, examples)
    return curve


def test_a_picture_never_has_more_points_than_it_may() -> None:
    assert len(points_of(curve_of([(1.0, 8)] * 500))) <= 160


def test_the_points_of_a_short_curve_stay_as_they_are() -> None:
    assert points_of(curve_of([(1.0, 8), (2.0, 8)])) == [Point(1, 1.0, 8), Point(2, 2.0, 8)]


def test_the_last_smaller_batch_of_an_epoch_is_no_spike() -> None:
    points = points_of(curve_of([(0.5, 64), (0.5, 64), (9.0, 3), (0.5, 64)]))

    assert [round(point.value, 2) for point in points] == [0.5, 0.5, 0.88]


def test_a_loss_that_is_not_finite_is_left_out_of_a_mean_and_alone_a_gap() -> None:
    assert [point.value for point in shortened([Point(1, math.nan, 8), Point(2, 0.5, 8)], 1)] == [0.5]
    assert math.isnan(points_of(curve_of([(math.inf, 8)]))[0].value)
    assert math.isnan(smooth([Point(1, math.inf, 8)])[0].value)


def test_the_running_mean_is_weighted_by_examples() -> None:
    even, uneven = (smooth([Point(1, 0.0, 8), Point(2, 1.0, size)], windows=1)[1].value for size in (8, 800))

    assert even < uneven


def test_the_losses_of_several_optimizers_have_a_curve_each() -> None:
    losses = LiveLosses()
    parts = {"generator": torch.tensor(0.5), "discriminator": torch.tensor(0.25)}
    row: BatchRow = (None, 1, 8, 0.0, "train", parts)
    losses.take([row])

    assert {name: points_of(curve)[0].value for name, curve in losses.curves.items()} == {
        "generator": 0.5,
        "discriminator": 0.25,
    }


def test_sizes_that_are_tensors_are_read() -> None:
    losses = LiveLosses()
    losses.take([(torch.tensor(0.5), 1, torch.tensor(8), 0.0, "train", None)])

    assert points_of(losses.curves["training"]) == [Point(1, 0.5, 8)]


@pytest.mark.parametrize("count", [3, 25])
def test_the_state_is_plain_and_continues_as_if_nothing_had_been(count: int) -> None:
    def taken(losses: LiveLosses, first: int, last: int) -> LiveLosses:
        losses.take([(torch.tensor(float(step)), step, 8, 0.0, "train", None) for step in range(first, last)])
        return losses

    again = LiveLosses()
    again.load_state_dict(json.loads(json.dumps(taken(LiveLosses(), 0, count).state_dict())))

    whole = taken(LiveLosses(), 0, 500)
    assert taken(again, count, 500).state_dict() == whole.state_dict()


def test_of_several_evaluations_at_a_step_the_last_one_is_drawn() -> None:
    rows = [{"set": "valid", "step": step, "loss": loss} for step, loss in ((3, 0.5), (6, 0.75), (6, 0.25))]

    assert points_by_curve(rows, lambda name: name == "loss")["valid"] == [Point(3, 0.5, 1), Point(6, 0.25, 1)]
