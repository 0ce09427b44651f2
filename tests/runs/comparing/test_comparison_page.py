from __future__ import annotations

import re
from dataclasses import replace
from html.parser import HTMLParser

from tests.runs.comparing.test_comparison_lines import COMPARED
from train_manager.runs.code.differences import Change, CodeDifference, FileDifference
from train_manager.runs.comparing.compared import Points
from train_manager.runs.comparing.comparison_page import comparison_page

POINTS: Points = [(1, 0.5), (2, 0.25)]
CURVES = {"loss": [POINTS, []], "valid/loss": [POINTS, POINTS]}
EVIL = "<script>alert(1)</script>"


class Page(HTMLParser):
    """The elements of a page; it fails if they are not closed in their order."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.seen: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.feed(text)
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append((tag, dict(attrs)))
        if tag != "meta":
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def test_a_page_is_whole_and_asks_nobody_for_anything() -> None:
    text = comparison_page(replace(COMPARED, curves=CURVES))
    page = Page(text)

    assert not {"script", "link", "img", "iframe"} & {tag for tag, _ in page.seen}
    assert {name for _, attributes in page.seen for name in attributes} & {"src", "href", "onload"} == set()
    assert not re.findall(r"url\((?!#)|@import", text)
    assert "http" not in re.sub(r'xmlns(:xlink)?="[^"]*"|http-equiv', "", text)


def test_tables_have_heads_of_columns_and_rows() -> None:
    page = Page(comparison_page(COMPARED))

    heads = [attributes.get("scope") for tag, attributes in page.seen if tag == "th"]

    assert set(heads) == {"col", "row"}
    assert [tag for tag, _ in page.seen if tag in ("h1", "h2")][:3] == ["h1", "h2", "h2"]


def test_what_is_recorded_is_text_on_the_page() -> None:
    run = replace(COMPARED.runs[0], label=EVIL, train_dir=EVIL, outcome=EVIL)
    files = CodeDifference(
        (FileDifference(EVIL, EVIL), FileDifference("a", EVIL, (Change(1, (EVIL,), (EVIL,)),))), (EVIL,)
    )
    rows = {EVIL: (EVIL, EVIL * 9)}
    evil = replace(
        COMPARED,
        runs=(run, run),
        parameters=rows,
        metrics=rows,
        files=(files,),
        curves={EVIL: [POINTS, POINTS]},
        notes=(EVIL,),
    )

    assert "script" not in {tag for tag, _ in Page(comparison_page(evil)).seen}


def test_curves_are_a_picture_with_a_name_in_the_colour_of_the_page() -> None:
    page = Page(comparison_page(replace(COMPARED, curves=CURVES)))

    (picture,) = [attributes for tag, attributes in page.seen if tag == "svg"]
    assert picture["role"] == "img"
    assert picture["aria-label"] == "Curves over steps of loss, valid/loss; the table of metrics has their ends."
    assert any("currentColor" in str(attributes.get("style")) for _, attributes in page.seen)


def test_a_band_is_drawn_behind_its_curve() -> None:
    bands = {"loss": [[(1.0, 0.25, 99.0), (2.0, 0.25, 0.5)], []]}
    without = comparison_page(replace(COMPARED, curves=CURVES))
    page = comparison_page(replace(COMPARED, curves=CURVES, bands=bands))

    assert page.count("fill-opacity: 0.25") == without.count("fill-opacity: 0.25") + 1


def test_a_long_value_can_be_opened() -> None:
    text = comparison_page(replace(COMPARED, parameters={"model": ("x" * 1200, "y")}))

    assert f"<details><summary>{'x' * 80}… (1,200 characters)</summary>{'x' * 1200}</details>" in text


def test_the_same_comparison_gives_the_same_page() -> None:
    compared = replace(COMPARED, curves=CURVES)

    assert comparison_page(compared) == comparison_page(compared)
