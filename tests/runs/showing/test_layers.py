from __future__ import annotations

import math
from array import array

import numpy as np
import pytest
import torch

from train_manager.metrics.histogram import histogram_of
from train_manager.runs.showing.layers import MOST_COLUMNS, quantiles, shown_layers
from train_manager.runs.store.curves import small_batches
from train_manager.runs.store.rows import StoredArray
from train_manager.runs.store.schema import Series


def rows(*vectors: list[float], start: int = 1) -> list[StoredArray]:
    labels = tuple(f"net.{n}.fc Linear" for n in range(len(vectors[0])))
    shape = (len(vectors[0]),)
    return [StoredArray(step, 1, 0.0, shape, array("f", row), labels) for step, row in enumerate(vectors, start)]


def test_few_layers_are_curves_between_their_means_and_largest() -> None:
    arrays = {
        Series("norms"): rows([1.0, 2.0], [3.0, 4.0]),
        Series("norms_largest"): rows([5.0, 6.0], start=2),
        Series("norms_counts"): rows([4.0, 16.0]),
    }

    [plot], maps = shown_layers(0, arrays, {}, {})

    assert maps == []
    assert [(one.name, one.y, one.low, one.high, one.root) for one in plot.curves] == [
        ("0.fc Linear", [1.0, 3.0], [1.0, 3.0], [1.0, 5.0], 2.0),
        ("1.fc Linear", [2.0, 4.0], [2.0, 4.0], [2.0, 6.0], 4.0),
    ]
    assert [one.depth for one in plot.curves] == [0.0, 1.0]


def test_many_layers_are_a_heat_map_of_few_columns_without_what_is_nan() -> None:
    vectors = [[math.nan, *[float(step)] * 199] for step in range(1, 1001)]

    plots, [heat] = shown_layers(0, {Series("norms"): rows(*vectors)}, {}, {})

    assert plots == []
    assert len(heat["values"]) == 200
    assert len(heat["x"]) == len(heat["values"][1]) <= MOST_COLUMNS
    assert {*heat["values"][0]} == {None}
    assert (heat["values"][1][0], heat["x"][-1]) == (2.5, 998.5)


def test_the_last_smaller_batch_is_part_of_the_one_before_it() -> None:
    small = small_batches(np.array([1, 2, 3]), np.array([60.0, 20.0, 60.0]))

    [plot], _ = shown_layers(0, {Series("norms"): rows([1.0], [9.0], [1.0])}, {}, small)

    assert (plot.curves[0].x, plot.curves[0].y) == ([2, 3], [3.0, 1.0])


def test_rows_are_in_the_order_of_their_steps_and_counts_of_nothing_divide_nothing() -> None:
    arrays = {
        Series("norms"): [*rows([2.0], start=5), *rows([1.0], start=3)],
        Series("norms_counts"): rows([0.0]),
    }

    [plot], _ = shown_layers(0, arrays, {}, {})

    assert (plot.curves[0].x, plot.curves[0].y, plot.curves[0].root) == ([3, 5], [1.0, 2.0], 1.0)


def test_histograms_are_medians_in_a_band_or_the_width_of_many() -> None:
    few = {Series(f"weights/{n}"): [(1, [0.0, 1.0, 2.0], [10, 10])] for n in range(2)}
    many = {Series(f"weights/{n}"): [(1, [0.0, 1.0, 2.0], [10, 10])] for n in range(9)}

    [plot], _ = shown_layers(0, {}, few, {})
    _, [heat] = shown_layers(0, {}, many, {})

    assert (plot.name, plot.curves[0].y, plot.curves[0].low, plot.curves[0].high) == (
        "weights: median, 5 % and 95 %",
        [1.0],
        [0.1],
        [1.9],
    )
    assert (heat["name"], heat["values"][0]) == ("weights: width of the middle 90 %", [1.8])


def test_gradients_that_are_all_zero_have_no_width() -> None:
    edges, counts = histogram_of(torch.zeros(5), bins=64)

    assert quantiles(edges.tolist(), counts.tolist()) == [0.0, 0.0, 0.0]


def test_a_histogram_without_values_has_no_quantiles() -> None:
    assert all(map(math.isnan, quantiles([0.0, 1.0], [0])))
    assert quantiles([0.0, 1.0, 2.0], [0, 4]) == pytest.approx([1.05, 1.5, 1.95])
