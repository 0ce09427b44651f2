"""Figures of layers: lines for few, a heat map for many, and what must not go wrong in them."""

from __future__ import annotations

import math
import re

import numpy as np
import pytest
import torch
from matplotlib.axes import Axes
from numpy.typing import NDArray

from tests.support.figures import columns_of, overlaps, texts_of
from train_manager.metrics.histogram import histogram_of
from train_manager.metrics.layer_series import LayerSeries
from train_manager.reporting.figures import render_figure
from train_manager.reporting.layer_figures import histograms_figure, layers_figure
from train_manager.reporting.panels import short_labels


def values_in(axes: Axes) -> NDArray[np.float64]:
    """The values of a heat map; nan where there is none."""
    return np.ma.filled(np.ma.asarray(axes.images[0].get_array(), dtype=float), math.nan)


@pytest.mark.parametrize("layers", [1, 2, 8])
def test_up_to_8_layers_are_lines(layers: int) -> None:
    figure = layers_figure({"gradient_norms": columns_of(layers)}, "none")

    assert len(figure.axes[0].lines) == layers
    assert len(figure.legends[0].get_texts()) == layers


@pytest.mark.parametrize("layers", [9, 200])
def test_more_layers_are_a_heat_map(layers: int) -> None:
    figure = layers_figure({"gradient_norms": columns_of(layers)}, "none")
    drawn = render_figure(figure, "svg")

    assert values_in(figure.axes[0]).shape == (layers, 400)
    assert len(drawn) < 60_000


@pytest.mark.parametrize("value", [0.0, math.nan])
def test_nothing_above_0_is_a_sentence(value: float) -> None:
    figure = layers_figure({"dead_units": columns_of(9, value=value)}, "no dead unit in 9 layers & more")

    assert texts_of(figure) == ["no dead unit in 9 layers & more"]


@pytest.mark.parametrize(("layers", "value"), [(2, math.inf), (20, 1e-30), (20, 1e30)])
def test_extreme_numbers_are_drawn(layers: int, value: float) -> None:
    columns = columns_of(layers)
    columns.append(torch.full((layers,), value), 51, weight=64)
    columns.take()

    assert "steps" in texts_of(layers_figure({"gradient_norms": columns}, "none"))


@pytest.mark.parametrize("layers", [2, 20])
def test_one_step_is_drawn(layers: int) -> None:
    assert "steps" in texts_of(layers_figure({"gradient_norms": columns_of(layers, steps=1)}, "none"))


def test_norms_are_shown_by_number() -> None:
    columns = LayerSeries(["a", "b"], counts=[4, 16])
    columns.append(torch.tensor([2.0, 4.0]), 1, weight=1)
    columns.take()

    assert "gradient norms, RMS" in texts_of(layers_figure({"gradient_norms": columns}, "none"))


@pytest.mark.parametrize(
    ("labels", "short"),
    [
        (["a.b.0 Linear", "a.b.1 ReLU"], ["0 Linear", "1 ReLU"]),
        (["layer1.0 Linear", "layer2.0 Linear"], ["layer1.0 Linear", "layer2.0 Linear"]),
        (["a.b Linear"], ["a.b Linear"]),
        (["a", "a.b"], ["a", "a.b"]),
        ([], []),
    ],
)
def test_names_of_layers_lose_the_modules_that_all_begin_with(labels: list[str], short: list[str]) -> None:
    assert short_labels(labels) == short


def test_a_long_name_keeps_its_ends_where_names_differ() -> None:
    columns = columns_of(2, label="{}." + "x" * 40 + ".weight Linear")

    assert f"0.{'x' * 13}….weight Linear" in texts_of(layers_figure({"n": columns}, "none"))


def with_a_zero(layers: int) -> LayerSeries:
    """Numbers that differ so much that their scale is logarithmic, and a 0 of the first layer at the end."""
    columns = columns_of(layers, steps=2, value=1000.0)
    columns.append(torch.cat([torch.zeros(1), torch.ones(layers - 1)]), 3, weight=64)
    columns.take()
    return columns


def test_a_line_on_a_logarithmic_scale_has_a_gap_at_0() -> None:
    axes = layers_figure({"gradient_norms": with_a_zero(2)}, "none").axes[0]

    assert axes.get_yscale() == "log"
    assert not math.isfinite(axes.transData.transform((3, 0))[1])


def test_0_has_the_darkest_colour_of_a_logarithmic_scale() -> None:
    axes = layers_figure({"gradient_norms": with_a_zero(20)}, "none").axes[0]

    assert values_in(axes)[0, -1] == 1
    assert axes.images[0].norm.vmin == 1


def test_a_value_that_is_not_there_is_grey() -> None:
    columns = columns_of(9, steps=1)
    columns.append(torch.tensor([math.nan, *range(1, 9)]), 2, weight=64)
    columns.take()
    axes = layers_figure({"n": columns}, "none", (0.0, 9.0)).axes[0]

    assert np.round(axes.images[0].cmap.get_bad() * 255).tolist() == [128, 128, 128, 255]
    assert np.isnan(values_in(axes)).sum() == 200


def test_infinity_has_the_colour_of_the_largest_value() -> None:
    columns = columns_of(9, steps=1)
    columns.append(torch.tensor([math.inf, *range(1, 9)]), 2, weight=64)
    columns.take()

    assert values_in(layers_figure({"n": columns}, "none").axes[0])[0, -1] == 9


@pytest.mark.parametrize(("layers", "last"), [(2, 32_800), (20, 123_456), (20, 2_000_000)])
def test_steps_are_never_in_scientific_notation(layers: int, last: int) -> None:
    columns = LayerSeries([f"{number} Linear" for number in range(layers)])
    for step in (1, last):
        columns.append(torch.arange(1.0, layers + 1), step, weight=64)
    columns.take()
    texts = texts_of(layers_figure({"n": columns}, "none"))

    assert not any(re.search(r"\de[+-]?\d", text) for text in texts)
    assert any(re.fullmatch(r"[\d.]+[kM]", text) for text in texts)


@pytest.mark.parametrize("layers", [1, 8, 200])
def test_no_text_of_layers_covers_another_or_is_cut_off(layers: int) -> None:
    columns = columns_of(layers, label="{}." + "w" * 40 + " Linear")

    assert overlaps(layers_figure({"gradient_norms": columns}, "none")) == []


@pytest.mark.parametrize("layers", [1, 3, 30])
def test_the_numbers_of_a_scale_of_colours_are_at_least_two_and_not_over_each_other(layers: int) -> None:
    found = {f"weights/{number}": ([0.0, 0.5, 1.0], [1, 1]) for number in range(layers)}
    figure = histograms_figure(found, "none")

    assert overlaps(figure) == []
    assert len(figure.axes[1].get_yticks()) >= 2


def test_a_layer_of_zeros_does_not_press_the_histograms_of_others_into_a_corner() -> None:
    small, zeros = (histogram_of(values, bins=64) for values in (torch.linspace(-0.01, 0.01, 99), torch.zeros(9)))
    found = {f"gradients/{n}": (edges.tolist(), counts.tolist()) for n, (edges, counts) in enumerate((small, zeros))}
    small_row, zero_row = values_in(histograms_figure(found, "none").axes[0]).tolist()
    is_dark = [value == 0 for value in zero_row]

    assert min(small_row[0], small_row[-1]) > 0
    assert is_dark.index(False) == len(is_dark) / 2
    assert is_dark.count(False) == 2
