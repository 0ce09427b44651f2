"""Figures of matplotlib: what is drawn, that all of it can be read, and that it is the same for the same content."""

from __future__ import annotations

import math
import re
import xml.etree.ElementTree as ET
from collections.abc import Callable

import matplotlib
import numpy as np
import pytest
import torch
from matplotlib.axis import Axis
from matplotlib.figure import Figure

from train_manager.metrics.column_windows import Column
from train_manager.metrics.columns import Columns
from train_manager.metrics.histogram import histogram_of
from train_manager.reporting.curves import Curves, new_curves
from train_manager.reporting.figures import (
    GREY,
    Examples,
    confusion_figure,
    gallery_figure,
    histograms_figure,
    layers_figure,
    panels_figure,
    render_figure,
    speed_figure,
    thin_out,
)
from train_manager.reporting.loss_panels import loss_panels
from train_manager.reporting.panels import short_labels

TEXT = "{http://www.w3.org/2000/svg}text"


def columns_of(layers: int, steps: int = 50, value: float = 1.0, label: str = "net.{} Linear") -> Columns:
    columns = Columns([label.format(number) for number in range(layers)])
    for step in range(1, steps + 1):
        columns.append(torch.full((layers,), value) * torch.arange(1, layers + 1), step, weight=64)
    columns.take()
    return columns


def examples_of(inputs: torch.Tensor) -> Examples:
    numbers = torch.arange(len(inputs))
    return {"inputs": inputs, "said": numbers % 2, "true": numbers % 3, "sure": numbers / 8, "place": numbers}


def texts_of(figure: Figure) -> list[str]:
    return [text.text or "" for text in ET.fromstring(render_figure(figure, "svg")).iter(TEXT)]


# ---- numbers of layers -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("layers", [1, 2, 8])
def test_up_to_8_layers_are_lines(layers: int) -> None:
    figure = layers_figure({"gradient_norms": columns_of(layers)}, "none")

    assert len(figure.axes[0].lines) == layers
    assert len(figure.legends[0].get_texts()) == layers


@pytest.mark.parametrize("layers", [9, 200])
def test_more_layers_are_a_heat_map(layers: int) -> None:
    figure = layers_figure({"gradient_norms": columns_of(layers)}, "none")
    drawn = render_figure(figure, "svg")

    assert figure.axes[0].images[0].get_array().shape == (layers, 400)
    assert len(drawn) < 60_000


@pytest.mark.parametrize("value", [0.0, math.nan])
def test_nothing_above_0_is_a_sentence(value: float) -> None:
    figure = layers_figure({"dead_units": columns_of(9, value=value)}, "no dead unit in 9 layers & more")

    assert texts_of(figure) == ["no dead unit in 9 layers & more"]


@pytest.mark.parametrize("layers", [2, 20])
@pytest.mark.parametrize("value", [math.inf, 1e-30, 1e30])
def test_extreme_numbers_are_drawn(layers: int, value: float) -> None:
    columns = columns_of(layers)
    columns.append(torch.full((layers,), value), 51, weight=64)
    columns.take()

    assert "steps" in texts_of(layers_figure({"gradient_norms": columns}, "none"))


@pytest.mark.parametrize("layers", [2, 20])
def test_one_step_is_drawn(layers: int) -> None:
    assert "steps" in texts_of(layers_figure({"gradient_norms": columns_of(layers, steps=1)}, "none"))


def test_norms_are_shown_by_number() -> None:
    columns = Columns(["a", "b"], counts=[4, 16])
    columns.append(torch.tensor([2.0, 4.0]), 1, weight=1)
    columns.take()

    assert "gradient norms, RMS" in texts_of(layers_figure({"gradient_norms": columns}, "none"))


def test_the_last_smaller_batch_of_an_epoch_is_no_spike() -> None:
    ones = torch.ones(1)
    rows = [
        Column(step, 3 if step % 5 == 0 else 64, ones * (50 if step % 5 == 0 else 1), ones) for step in range(1, 21)
    ]

    assert max(row.mean.item() for row in thin_out(rows)) < 5


def test_a_long_training_has_few_points() -> None:
    assert len(thin_out(columns_of(1, steps=3000).rows)) <= 400


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


def test_a_long_name_keeps_its_end() -> None:
    columns = columns_of(2, label="x" * 40 + "{}.weight Linear")

    assert f"…{'x' * 14}0.weight Linear" in texts_of(layers_figure({"n": columns}, "none"))


@pytest.mark.parametrize("layers", [2, 20])
def test_a_value_of_0_is_a_gap_or_the_darkest_colour_where_values_are_on_a_logarithmic_scale(layers: int) -> None:
    columns = columns_of(layers, steps=2, value=1000.0)
    columns.append(torch.cat([torch.zeros(1), torch.ones(layers - 1)]), 3, weight=64)
    columns.take()
    axes = layers_figure({"gradient_norms": columns}, "none").axes[0]
    if axes.images:
        assert axes.images[0].get_array()[0, -1] == axes.images[0].norm.vmin
    else:
        assert axes.get_yscale() == "log"
        assert axes.get_ylim()[0] > 0.1


def test_a_value_that_is_not_there_is_grey() -> None:
    columns = columns_of(9, steps=1)
    columns.append(torch.tensor([math.nan, *range(1, 9)]), 2, weight=64)
    columns.take()
    picture = layers_figure({"n": columns}, "none", (0.0, 9.0)).axes[0].images[0]

    assert np.round(picture.cmap(picture.norm(picture.get_array()))[0, -1] * 255).tolist() == [128, 128, 128, 255]
    assert np.ma.count_masked(np.ma.masked_invalid(picture.get_array())) == 200


def test_infinity_has_the_colour_of_the_largest_value() -> None:
    columns = columns_of(9, steps=1)
    columns.append(torch.tensor([math.inf, *range(1, 9)]), 2, weight=64)
    columns.take()
    picture = layers_figure({"n": columns}, "none").axes[0].images[0]

    assert picture.get_array()[0, -1] == 9


@pytest.mark.parametrize("layers", [2, 20])
@pytest.mark.parametrize("last", [32_800, 123_456, 2_000_000])
def test_steps_are_never_in_scientific_notation(layers: int, last: int) -> None:
    columns = Columns([f"{number} Linear" for number in range(layers)])
    for step in (1, last):
        columns.append(torch.arange(1.0, layers + 1), step, weight=64)
    columns.take()
    texts = texts_of(layers_figure({"n": columns}, "none"))

    assert not any(re.search(r"\de[+-]?\d", text) for text in texts)
    assert any(re.fullmatch(r"[\d.]+[kM]", text) for text in texts)


@pytest.mark.parametrize("layers", [1, 2, 8, 20, 200])
def test_no_text_of_layers_covers_another_or_is_cut_off(layers: int) -> None:
    columns = columns_of(layers, label="{}." + "w" * 40 + " Linear")

    assert overlaps(layers_figure({"gradient_norms": columns}, "none")) == []


@pytest.mark.parametrize("layers", [1, 2, 3, 30])
def test_the_numbers_of_a_scale_of_colours_are_at_least_two_and_not_over_each_other(layers: int) -> None:
    found = {f"weights/{number}": ([0.0, 0.5, 1.0], [1, 1]) for number in range(layers)}
    figure = histograms_figure(found, "none")

    assert overlaps(figure) == []
    assert len(figure.axes[1].get_yticks()) >= 2


def test_a_layer_of_zeros_does_not_press_the_histograms_of_others_into_a_corner() -> None:
    small, zeros = (histogram_of(values, bins=64) for values in (torch.linspace(-0.01, 0.01, 99), torch.zeros(9)))
    found = {f"gradients/{n}": (edges.tolist(), counts.tolist()) for n, (edges, counts) in enumerate((small, zeros))}
    small_row, zero_row = histograms_figure(found, "none").axes[0].images[0].get_array().tolist()
    is_dark = [value == 0 for value in zero_row]

    assert min(small_row[0], small_row[-1]) > 0
    assert is_dark.index(False) == len(is_dark) / 2
    assert is_dark.count(False) == 2


# ---- evaluations -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("classes", [2, 20, 100])
def test_a_confusion_matrix_of_any_size_is_drawn(classes: int) -> None:
    figure = confusion_figure({"valid": torch.eye(classes, dtype=torch.long).tolist()}, [])

    assert "100.0% of 1 found, 100.0% of 1 right" in texts_of(figure)


def test_no_text_of_a_confusion_matrix_covers_another_or_is_cut_off() -> None:
    counts = torch.full((20, 20), 12_345).tolist()
    figure = confusion_figure({"valid": counts, "test": [[1, 0], [0, 0]]}, [f"class {n} of twenty" for n in range(20)])

    assert overlaps(figure) == []


def test_an_example_has_its_prediction_below_it() -> None:
    texts = texts_of(gallery_figure({"valid": examples_of(torch.rand(5, 3, 4, 6))}, ["cat", "dog", "bird"]))

    assert texts[:5] == ["valid: the surest mistakes, then random examples", "cat, 0%", "right", "dog, 12%", "right"]


@pytest.mark.parametrize("inputs", [torch.rand(5, 64), torch.rand(5, 1, 40, 20), torch.rand(9, 3, 4, 9)])
def test_no_text_of_a_gallery_covers_another_or_is_cut_off(inputs: torch.Tensor) -> None:
    sets = {"valid": examples_of(inputs), "test": examples_of(inputs)}

    assert overlaps(gallery_figure(sets, ["a class with a long name"] * 3)) == []


# ---- all pictures that a notebook shows ------------------------------------------------------------------------------

NAME = "</text><script>alert(1)</script> & $x_1$"
SHOWN: dict[str, Callable[[], Figure]] = {
    "lines": lambda: layers_figure({"n": columns_of(2, label="{}." + NAME)}, "none"),
    "heat map": lambda: layers_figure({"n": columns_of(20, label="{}." + NAME)}, "none"),
    "histograms": lambda: histograms_figure({f"weights/{NAME}": ([0.0, 1.0], [3])}, "none"),
    "matrix": lambda: confusion_figure({NAME: [[1, 0], [0, 1]]}, [NAME, NAME]),
    "gallery": lambda: gallery_figure({NAME: examples_of(torch.eye(4))}, [NAME] * 3),
    "speed": lambda: speed_figure({NAME: ([1, 2], [3.0, 4.0])}),
    "sentence": lambda: gallery_figure({}, []),
}


@pytest.mark.parametrize("made", SHOWN.values(), ids=SHOWN)
def test_names_of_any_kind_are_texts(made: Callable[[], Figure]) -> None:
    assert b"<script" not in render_figure(made(), "svg")


@pytest.mark.parametrize("made", SHOWN.values(), ids=SHOWN)
def test_the_same_content_gives_the_same_file(made: Callable[[], Figure]) -> None:
    assert render_figure(made(), "svg") == render_figure(made(), "svg")


@pytest.mark.parametrize("made", SHOWN.values(), ids=SHOWN)
def test_a_picture_in_a_notebook_is_legible_on_light_and_on_dark_paper(made: Callable[[], Figure]) -> None:
    figure = made()
    axes_of = [axis for axes in figure.axes for axis in (axes.xaxis, axes.yaxis)]
    texts = [text for axes in figure.axes for text in (axes._left_title, axes.xaxis.label, axes.yaxis.label)]
    texts += [tick.label1 for axis in axes_of for tick in axis.get_major_ticks()]
    texts += [*figure.texts, *(text for legend in figure.legends for text in legend.get_texts())]

    assert {text.get_color() for text in texts} == {GREY}
    assert all(part.get_facecolor()[3] == 0 for part in (figure.patch, *(axes.patch for axes in figure.axes)))
    assert all(contrast(GREY, paper) > 4.2 for paper in ("#ffffff", "#111111"))


def contrast(*colours: str) -> float:
    """The ratio of the luminances of two colours, as the W3C's guidelines define it."""
    light = []
    for colour in colours:
        parts = [part / 255 for part in bytes.fromhex(colour[1:])]
        red, green, blue = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
        light.append(0.2126 * red + 0.7152 * green + 0.0722 * blue + 0.05)
    return max(light) / min(light)


# ---- loss curves -----------------------------------------------------------------------------------------------------

LONG = [f"validation set of the year 2024, {part}, web pages in German" for part in ("first half", "second half")]


def curves_of(values: list[float]) -> Curves:
    curves = new_curves()
    for x, value in enumerate(values):
        for curve in curves.values():
            curve.append(x, value)
    return curves


def is_in_view(axis: Axis, place: float) -> bool:
    low, high = sorted(axis.get_view_interval())
    return bool(low <= place <= high)


def overlaps(figure: Figure) -> list[tuple[str, str]]:
    """Pairs of texts that cover each other, and texts that are cut off at the edge."""
    figure.draw_without_rendering()
    all_axes = [part for axes in figure.axes for part in (axes, *axes.child_axes)]
    axes_of = [axis for axes in all_axes for axis in (axes.xaxis, axes.yaxis)]
    ticks = [tick for axis in axes_of for tick in axis.get_major_ticks() if is_in_view(axis, tick.get_loc())]
    texts = [label for tick in ticks for label in (tick.label1, tick.label2) if label.get_visible()]
    texts += [axis.label for axis in axes_of]
    texts += [text for axes in all_axes for text in (axes.title, axes._left_title, *axes.texts)]
    texts += [text for part in (figure, *figure.subfigs) for text in part.texts]
    texts += [text for legend in figure.legends for text in legend.get_texts()]
    boxes = [(text.get_text(), text.get_window_extent()) for text in texts if text.get_text() and text.get_visible()]
    inside = [(a, b) for i, (a, box) in enumerate(boxes) for b, other in boxes[:i] if box.overlaps(other)]
    width, height = figure.bbox.size
    cut = [(a, "edge") for a, box in boxes if box.x0 < 0 or box.y0 < 0 or box.x1 > width or box.y1 > height]
    return inside + cut


def one_epoch() -> tuple[Curves, dict[str, Curves]]:
    return curves_of([2.3]), {"valid": curves_of([2.3, 0.5])}


def many_sets() -> tuple[Curves, dict[str, Curves]]:
    return curves_of([2.3, 0.01]), {f"{name} {i}": curves_of([2.3, 0.02]) for i in range(7) for name in LONG}


def large_numbers() -> tuple[Curves, dict[str, Curves]]:
    curves = new_curves()
    for x in range(1, 6):
        for curve in curves.values():
            curve.append(x * 987_654_321, 123456.0 - x)
    return curves, {}


def small_numbers() -> tuple[Curves, dict[str, Curves]]:
    return curves_of([1.00001e-5, 1.00002e-5, 0.0]), {}


def nothing() -> tuple[Curves, dict[str, Curves]]:
    return new_curves(), {}


def only_gaps() -> tuple[Curves, dict[str, Curves]]:
    return curves_of([math.nan, math.inf]), {"valid": curves_of([math.nan])}


@pytest.mark.parametrize(
    "case", [one_epoch, many_sets, large_numbers, small_numbers, nothing, only_gaps], ids=lambda case: case.__name__
)
def test_no_text_covers_another_or_is_cut_off(case: Callable[[], tuple[Curves, dict[str, Curves]]]) -> None:
    figure = panels_figure(loss_panels(*case()))
    assert overlaps(figure) == []


@pytest.mark.parametrize("count", [1, 2, 3, 4])
def test_metrics_have_panels_below_the_losses(count: int) -> None:
    training, sets = one_epoch()
    curve = training["epoch"]
    figure = panels_figure(
        loss_panels(training, sets, {f"$metric {i}": {"training": curve, "valid": curve} for i in range(count)})
    )
    assert [axes.get_ylabel() for axes in figure.axes] == ["loss"] * 3 + [f"$metric {i}" for i in range(count)]
    assert overlaps(figure) == []


def test_the_legend_names_every_curve_as_it_is() -> None:
    names = ["_hidden", "a $ and a $", "中文"]
    figure = panels_figure(loss_panels(curves_of([1, 2]), {name: curves_of([1, 2]) for name in names}))
    render_figure(figure, "png")
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["training", *names]


def test_the_settings_of_the_user_do_not_change_the_picture() -> None:
    curves = curves_of([2, 1])
    usual = render_figure(panels_figure(loss_panels(curves, {})), "png")
    with matplotlib.rc_context({"font.size": 30, "axes.facecolor": "black", "lines.linewidth": 9}):
        assert render_figure(panels_figure(loss_panels(curves, {})), "png") == usual
