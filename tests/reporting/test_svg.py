"""Panels of curves as an SVG file: what is in it, whatever the curves are."""

from __future__ import annotations

import math
from xml.etree import ElementTree

from hypothesis import given
from hypothesis import strategies as st

from train_manager.reporting.panels import Line, Panel, Panels
from train_manager.reporting.svg import svg

LOOK = {"color": "#0072b2", "marker": "o"}
SPACE = "{http://www.w3.org/2000/svg}"


def drawn(x: list[float], y: list[float], scale: str = "linear", name: str = "valid") -> ElementTree.Element:
    panel = Panel("epochs", "loss", scale, [Line(LOOK, x, y)])
    return ElementTree.fromstring(svg(Panels([(300, [panel])], [(name, LOOK)])))


def texts(root: ElementTree.Element) -> list[str]:
    return [text.text or "" for text in root.iter(f"{SPACE}text")]


def path_of_the_curve(root: ElementTree.Element) -> str:
    return next(path.get("d", "") for path in root.iter(f"{SPACE}path") if path.get("class") == "line")


def test_a_value_that_is_not_finite_is_a_gap() -> None:
    assert path_of_the_curve(drawn([1, 2, 3, 4, 5], [1, 2, math.nan, 2, 1])).count("M") == 2


def test_a_curve_of_few_points_has_a_marker_at_each() -> None:
    markers = [
        p for p in drawn([1, 2, 3], [1, 2, 3]).iter(f"{SPACE}path") if (p.get("transform") or "").startswith("tr")
    ]

    assert len(markers) == 3 + 1  # and that of the legend


def test_a_curve_of_many_points_has_none() -> None:
    root = drawn(list(map(float, range(31))), [1.0] * 31)
    markers = [path for path in root.iter(f"{SPACE}path") if (path.get("transform") or "").startswith("tr")]

    assert len(markers) == 1


def test_the_ticks_of_epochs_are_whole_numbers() -> None:
    found = texts(drawn([1, 2], [0.5, 0.25]))

    assert found[: found.index("epochs")][:2] == ["1", "2"]


def test_large_numbers_of_examples_are_told_in_units() -> None:
    assert {"0", "1M", "2M"} <= set(texts(drawn([0, 2_000_000], [1, 2])))


def test_a_scale_of_logarithms_has_the_powers_of_ten() -> None:
    assert {"0.001", "0.01", "0.1", "1", "10", "100"} <= set(texts(drawn([1, 2], [0.0009, 110], "log")))


def test_signs_in_a_name_are_text() -> None:
    assert "a < b & $c$" in texts(drawn([1], [1], name="a < b & $c$"))


def test_its_lines_are_lighter_on_a_dark_page() -> None:
    style = drawn([1], [1]).findtext(f"{SPACE}style") or ""

    assert "filter: brightness" in style.partition("prefers-color-scheme: dark")[2]


def test_a_panel_without_points_is_drawn_on_a_scale_of_logarithms() -> None:
    assert path_of_the_curve(drawn([], [], "log")) == ""


NUMBERS = st.floats(allow_infinity=True, allow_nan=True, width=64)


@given(st.lists(NUMBERS, max_size=40))
def test_any_values_give_a_file_without_a_number_that_is_none(values: list[float]) -> None:
    found = path_of_the_curve(drawn(list(map(float, range(len(values)))), values))

    assert "nan" not in found
    assert "inf" not in found
