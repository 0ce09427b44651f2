"""Pictures of layers: lines for few, a heat map for many, and what must not go wrong in them."""

from __future__ import annotations

import base64
import io
import itertools
import math
import re
import xml.etree.ElementTree as ET

import pytest
import torch
from matplotlib import image

from train_manager.metrics.histogram import histogram_of
from train_manager.metrics.layer_series import LayerSeries
from train_manager.reporting.confusion_svg import confusion_svg
from train_manager.reporting.heat_map import HeatMap, heat_map, short_labels
from train_manager.reporting.histograms_svg import histograms_svg
from train_manager.reporting.layers_svg import layers_svg

TEXT = "{http://www.w3.org/2000/svg}text"


def columns_of(layers: int, steps: int = 50, value: float = 1.0, label: str = "net.{} Linear") -> LayerSeries:
    columns = LayerSeries([label.format(number) for number in range(layers)])
    for step in range(1, steps + 1):
        columns.append(torch.full((layers,), value) * torch.arange(1, layers + 1), step, weight=64)
    columns.take()
    return columns


@pytest.mark.parametrize("layers", [1, 2, 8])
def test_up_to_8_layers_are_lines(layers: int) -> None:
    text = layers_svg({"gradient_norms": columns_of(layers)}, "none")

    ET.fromstring(text)
    assert text.count('class="line"') == 2 * layers  # and in the legend
    assert "<image" not in text


@pytest.mark.parametrize("layers", [9, 200])
def test_more_layers_are_a_heat_map(layers: int) -> None:
    text = layers_svg({"gradient_norms": columns_of(layers)}, "none")

    ET.fromstring(text)
    assert text.count("<image") == 2  # and the scale
    assert len(text) < 60_000


@pytest.mark.parametrize("value", [0.0, math.nan])
def test_nothing_above_0_is_a_sentence(value: float) -> None:
    text = layers_svg({"dead_units": columns_of(9, value=value)}, "no dead unit in 9 layers & more")

    ET.fromstring(text)
    assert "no dead unit in 9 layers &amp; more" in text
    assert "<image" not in text


@pytest.mark.parametrize("layers", [2, 20])
@pytest.mark.parametrize("value", [math.inf, 1e-30, 1e30])
def test_extreme_numbers_are_drawn(layers: int, value: float) -> None:
    columns = columns_of(layers)
    columns.append(torch.full((layers,), value), 51, weight=64)
    columns.take()

    ET.fromstring(layers_svg({"gradient_norms": columns}, "none"))


def test_one_step_is_drawn() -> None:
    for layers in (2, 20):
        ET.fromstring(layers_svg({"gradient_norms": columns_of(layers, steps=1)}, "none"))


def test_norms_are_shown_by_number() -> None:
    columns = LayerSeries(["a", "b"], counts=[4, 16])
    columns.append(torch.tensor([2.0, 4.0]), 1, weight=1)
    columns.take()

    assert "gradient norms, RMS" in layers_svg({"gradient_norms": columns}, "none")


def test_what_all_names_begin_with_is_left_out() -> None:
    assert short_labels(["net.a.0 Linear", "net.b.0 Linear"]) == ["a.0 Linear", "b.0 Linear"]


def test_a_long_name_keeps_its_end() -> None:
    assert short_labels(["x" * 40 + ".weight Linear"])[0] == "…" + "x" * 15 + ".weight Linear"


def test_names_of_any_kind_are_escaped() -> None:
    name = "</text><script>alert(1)</script>"
    for text in (
        layers_svg({"n": columns_of(20, label="{}." + name)}, "none"),
        layers_svg({"n": columns_of(2, label="{}." + name)}, "none"),
        confusion_svg({name: [[1, 0], [0, 1]]}, [name, name]),
        histograms_svg({f"weights/{name}": ([0.0, 1.0], [3])}, "none"),
    ):
        ET.fromstring(text)
        assert "<script>" not in text


def test_a_layer_of_zeros_does_not_press_the_histograms_of_others_into_a_corner() -> None:
    small, zeros = (histogram_of(values, bins=64) for values in (torch.linspace(-0.01, 0.01, 99), torch.zeros(9)))
    found = {f"gradients/{n}": (edges.tolist(), counts.tolist()) for n, (edges, counts) in enumerate((small, zeros))}
    small_row, zero_row = pixels_of(histograms_svg(found, "none"))
    is_dark = [pixel == zero_row[0] for pixel in zero_row]

    assert zero_row[-1] not in (small_row[0], small_row[-1])
    assert is_dark.index(False) == len(is_dark) / 2
    assert is_dark.count(False) == 2


def pixels_of(part: str) -> list[list[list[int]]]:
    """The colours of an image in an SVG file."""
    file = base64.b64decode(part.split("base64,")[1].split('"')[0])
    found = (image.imread(io.BytesIO(file)) * 255).round().astype(int).tolist()
    return list(found)


def test_a_value_that_is_not_there_is_grey() -> None:
    picture = HeatMap("t", ["a", "b"], [1, 2], [[1.0, math.nan], [2.0, 1.0]])
    rows = pixels_of(next(part for part in heat_map(picture, 0, 1300) if "<image" in part))

    assert rows[1][0] == [128, 128, 128]
    assert [128, 128, 128] not in [*rows[0], rows[1][-1]]


@pytest.mark.parametrize("layers", [2, 20])
@pytest.mark.parametrize("last", [32_800, 123_456, 2_000_000])
def test_steps_are_never_in_scientific_notation(layers: int, last: int) -> None:
    columns = LayerSeries([f"{number} Linear" for number in range(layers)])
    for step in (1, last):
        columns.append(torch.arange(1.0, layers + 1), step, weight=64)
    columns.take()
    texts = [text.text or "" for text in ET.fromstring(layers_svg({"n": columns}, "none")).iter(TEXT)]

    assert not any(re.search(r"\de[+-]?\d", text) for text in texts)
    assert any(re.fullmatch(r"[\d.]+[kM]", text) for text in texts)


@pytest.mark.parametrize("layers", [2, 20, 200])
def test_each_name_lies_within_a_picture_as_wide_as_a_phone_can_show(layers: int) -> None:
    root = ET.fromstring(layers_svg({"n": columns_of(layers, label="{}." + "w" * 40 + " Linear")}, "none"))
    names = [text for text in root.iter(TEXT) if text.get("text-anchor") == "end" and "Linear" in (text.text or "")]

    assert root.get("width") == "720"
    assert all(float(text.get("x", "")) >= 7 * len(text.text or "") for text in names)


@pytest.mark.parametrize("layers", [1, 2, 3, 30])
def test_the_numbers_of_a_scale_are_not_over_each_other(layers: int) -> None:
    rows = HeatMap("t", [str(number) for number in range(layers)], [1], [[0.5] * layers], "linear", ends=(0.0, 1.0))
    scale = [float(y) for y in re.findall(r'<text x="658.0" y="([\d.]+)">', "".join(heat_map(rows, 0, 720)))]

    assert len(scale) >= 2
    assert min(before - after for before, after in itertools.pairwise(scale)) >= 13


@pytest.mark.parametrize("classes", [2, 20, 100])
def test_a_confusion_matrix_of_any_size_is_drawn(classes: int) -> None:
    text = confusion_svg({"valid": torch.eye(classes, dtype=torch.long).tolist()}, [])

    ET.fromstring(text)
    assert "100.0% of 1 found, 100.0% of 1 right" in text
