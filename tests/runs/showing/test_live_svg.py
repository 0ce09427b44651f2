from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree

import pytest

from tests.support.figures import contrast
from train_manager.metrics.windows import GrowingCurve
from train_manager.reporting.panels import COLOURS, TRAINING_COLOUR
from train_manager.runs.showing.live_svg import HEIGHT, WIDTH, live_svg

if TYPE_CHECKING:
    from playwright.sync_api import Page

SPACE = "{http://www.w3.org/2000/svg}"


def losses(count: int, name: str = "training") -> dict[str, GrowingCurve]:
    curve = GrowingCurve()
    for step in range(1, count + 1):
        curve.append(step, 1 / step**0.5 + 0.01 * math.sin(12.9898 * step), 64)
    return {name: curve}


def rows(sets: int, count: int = 10, **metrics: float) -> list[dict[str, Any]]:
    return [{"set": f"set {n}", "step": 30 * at, **metrics} for at in range(count) for n in range(sets)]


def picture(*given: Any) -> ElementTree.Element:
    return ElementTree.fromstring(live_svg(*given)[1])


def texts(root: ElementTree.Element) -> list[str]:
    return [text.text or "" for text in root.iter(f"{SPACE}text")]


def bottom(root: ElementTree.Element) -> float:
    """The y of the lowest text."""
    return max(float(text.get("y", 0)) for text in root.iter(f"{SPACE}text"))


@pytest.mark.parametrize("count", [0, 1, 2, 500, 100_000])
@pytest.mark.parametrize("sets", [0, 1, 3, 40])
def test_the_picture_has_the_same_size_however_much_it_shows(count: int, sets: int) -> None:
    root = picture(losses(count) if count else {}, [], rows(sets, loss=0.5, accuracy=0.9))

    assert (root.get("width"), root.get("height")) == (str(WIDTH), str(HEIGHT))
    assert bottom(root) < HEIGHT


def test_the_names_of_sets_are_cut_rather_than_drawn_beyond_the_picture() -> None:
    found = rows(1, loss=0.5)
    for row in found:
        row["set"] = "all that was measured in the year 2024, and half of the next one"
    root = picture(losses(3), [], found)

    assert "all that w… next one" in texts(root)


def test_a_long_training_with_three_sets_is_a_text_of_a_few_kilobytes() -> None:
    _, html = live_svg(losses(100_000), [], rows(3, 200, loss=0.5, accuracy=0.9))

    assert len(html) < 12_000


def test_it_has_no_script_and_no_colour_for_paper_and_text() -> None:
    _, html = live_svg(losses(30), [], rows(1, loss=0.5))

    assert "<script" not in html
    assert "prefers-color-scheme" not in html  # the theme of a notebook need not be that of the system
    assert "fill:currentColor" in html
    assert '"paper"' not in html


@pytest.mark.slow
@pytest.mark.parametrize(("paper", "text"), [("#ffffff", "#222222"), ("#111111", "#dddddd")])
def test_each_curve_stands_out_from_the_page_be_it_light_or_dark(
    opened: Callable[..., Page], paper: str, text: str
) -> None:
    _, html = live_svg(losses(30), [], rows(5, loss=0.5))
    page = opened(f'<body style="background: {paper}; color: {text}">{html}')
    found = page.evaluate("""[...document.querySelectorAll(".line")].map(one => {
        const context = document.createElement("canvas").getContext("2d");
        context.fillStyle = getComputedStyle(one).stroke;
        context.fillRect(0, 0, 1, 1);
        return [...context.getImageData(0, 0, 1, 1).data].slice(0, 3);
    })""")

    assert len(found) == 13  # the batches and their mean, five sets, and the legend
    assert all(contrast("#" + bytes(line).hex(), paper) > 3.5 for line in found)


def test_a_curve_keeps_its_own_colour_where_colours_cannot_be_mixed() -> None:
    root = picture(losses(30), [], rows(1, loss=0.5))

    assert {line.get("stroke") for line in root.iter(f"{SPACE}path") if line.get("class") == "line"} == {
        TRAINING_COLOUR,
        COLOURS[0],
    }


def test_its_style_is_for_itself_alone() -> None:
    _, html = live_svg(losses(30), [], [])
    style = html.partition("<style>")[2].partition("</style>")[0]

    assert all(rule.startswith(".tm-live ") for rule in style.split("}") if rule)


def test_names_are_escaped_in_the_picture_and_in_its_label() -> None:
    found = [{"set": '</svg><script>"', "step": 3, "loss": 0.5, "<b>&": 0.25}]
    text, html = live_svg({}, [], found)
    root = ElementTree.fromstring(html)

    assert root.get("aria-label") == text == 'loss: </svg><script>" 0.5; <b>&: </svg><script>" 0.25'
    assert "<b>&" in texts(root)


def test_the_first_metric_has_a_panel_and_others_have_none() -> None:
    shown = texts(picture({}, [], [{"set": "valid", "step": 3, "loss": 0.5, "accuracy": 0.75, "f1": 0.5}]))

    assert "accuracy" in shown
    assert "f1" not in shown


def test_a_metric_of_the_training_alone_has_a_panel_too() -> None:
    text, html = live_svg({}, [{"epoch": 1, "step": 3, "loss": 0.5, "accuracy": 0.75}], [])

    assert text == "loss: ; accuracy: training 0.75"
    assert ">accuracy</text>" in html


def test_the_losses_of_a_set_by_optimizer_are_named_by_both() -> None:
    found = [{"set": "valid", "step": 3, "losses/generator": 0.5}]

    assert live_svg(losses(1, "generator"), [], found)[0] == "loss: generator 1.004, valid generator 0.5"


def test_a_loss_that_falls_twentyfold_is_drawn_over_a_scale_of_powers() -> None:
    shown = texts(picture({}, [], [{"set": "valid", "step": step, "loss": 10.0**-step} for step in range(4)]))

    assert {"0.01", "0.1", "1"} <= {*shown}


def test_a_loss_that_is_never_finite_is_an_empty_panel() -> None:
    curve = GrowingCurve()
    curve.append(1, math.nan, 8)
    text, html = live_svg({"training": curve}, [], [])

    assert text == "loss: training nan"
    assert "nan" not in html.partition("<style>")[2]
