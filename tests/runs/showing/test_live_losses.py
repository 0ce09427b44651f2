from __future__ import annotations

import json
import math

import pytest
import torch

from train_manager.loop.batch_losses import BatchRow
from train_manager.runs.showing.live_losses import LiveCurve, LiveLosses, Point, join_points, points_by_curve, smooth


def curve_of(losses: list[float], most: int = 160, examples: int = 8) -> LiveCurve:
    curve = LiveCurve(most)
    for step, loss in enumerate(losses, start=1):
        curve.append(Point(step, loss, examples))
    return curve


def test_a_curve_never_has_more_points_than_it_may() -> None:
    lengths = [len(curve_of([1.0] * count, most=10).points) for count in range(1, 200)]

    assert max(lengths) == 10
    assert min(lengths[10:]) >= 5


def test_a_thinned_curve_keeps_the_mean_of_all() -> None:
    points = curve_of([float(number) for number in range(64)], most=8).points

    assert sum(point.value * point.examples for point in points) / sum(p.examples for p in points) == 31.5


def test_the_last_smaller_batch_of_an_epoch_is_no_spike() -> None:
    curve = LiveCurve()
    for step, (loss, examples) in enumerate([(0.5, 64), (0.5, 64), (9.0, 3), (0.5, 64)], start=1):
        curve.append(Point(step, loss, examples))

    assert [round(point.value, 2) for point in curve.points] == [0.5, 0.88, 0.5]


def test_a_loss_that_is_not_finite_is_left_out_of_a_mean_and_alone_a_gap() -> None:
    assert join_points([Point(1, math.nan, 8), Point(2, 0.5, 8)]).value == 0.5
    assert math.isnan(curve_of([0.5, math.inf]).points[0].value) is False
    assert math.isnan(smooth([Point(1, math.inf, 8)])[0].value)


def test_the_running_mean_begins_at_the_first_value() -> None:
    assert smooth([Point(1, 5.0, 8), Point(2, 5.0, 8)])[0].value == 5.0


def test_the_running_mean_is_weighted_by_examples() -> None:
    even, uneven = (smooth([Point(1, 0.0, 8), Point(2, 1.0, size)], windows=1)[1].value for size in (8, 800))

    assert even < uneven


def test_the_losses_of_several_optimizers_have_a_curve_each() -> None:
    losses = LiveLosses()
    parts = {"generator": torch.tensor(0.5), "discriminator": torch.tensor(0.25)}
    row: BatchRow = (None, 1, 8, 0.0, "train", parts)
    losses.take([row])

    assert {name: curve.points[0].value for name, curve in losses.curves.items()} == {
        "generator": 0.5,
        "discriminator": 0.25,
    }


def test_sizes_that_are_tensors_are_read() -> None:
    losses = LiveLosses()
    losses.take([(torch.tensor(0.5), 1, torch.tensor(8), 0.0, "train", None)])

    assert losses.curves["training"].points == [Point(1, 0.5, 8)]


@pytest.mark.parametrize("count", [3, 25])
def test_the_state_is_plain_and_continues_as_if_nothing_had_been(count: int) -> None:
    def taken(losses: LiveLosses, first: int, last: int) -> LiveLosses:
        losses.take([(torch.tensor(float(step)), step, 8, 0.0, "train", None) for step in range(first, last)])
        return losses

    again = LiveLosses()
    again.load_state_dict(json.loads(json.dumps(taken(LiveLosses(), 0, count).state_dict())))

    whole = taken(LiveLosses(), 0, 500)
    assert taken(again, count, 500).curves["training"].points == whole.curves["training"].points


def test_of_several_evaluations_at_a_step_the_last_one_is_drawn() -> None:
    rows = [{"set": "valid", "step": step, "loss": loss} for step, loss in ((3, 0.5), (6, 0.75), (6, 0.25))]

    assert points_by_curve(rows, lambda name: name == "loss")["valid"] == [Point(3, 0.5, 1), Point(6, 0.25, 1)]
