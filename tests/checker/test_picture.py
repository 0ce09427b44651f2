"""The stages of a class as a picture."""

from __future__ import annotations

import json
import re
from typing import Any
from xml.etree import ElementTree

import pytest

from train_manager import Extensible, Extension
from train_manager.checker.picture import picture
from train_manager.extensions import default_extensions
from train_manager.testing import tiny_manager

SVG = "{http://www.w3.org/2000/svg}"


class Loop(Extensible):
    def train(self) -> None:
        with self.staged("run", {"epoch_num": 0}):
            with self.staged("step", {"batch": 1}):
                self.fixtures["loss"] = 2
            self.evaluate()
            with self.staged("test"):
                self.evaluate()

    def evaluate(self) -> None:
        with self.staged("eval"):
            self.fixtures["result"] = 1


class Marked(Extension):
    def post_step(self, loss: int, batch: int) -> None: ...

    def pre_run(self) -> None: ...


def texts_of(text: str) -> list[str]:
    """The lines of a picture, without their tooltips."""
    drawn = ElementTree.fromstring(re.sub(r"(<text [^>]*>)<title>.*?</title>", r"\1", text, flags=re.DOTALL))
    return ["".join(text.itertext()).strip() for text in drawn.iter(f"{SVG}text")]


def boxes_of(text: str) -> list[dict[str, float]]:
    found = [box for box in ElementTree.fromstring(text).iter(f"{SVG}rect") if box.get("class") == "box"]
    return [{name: float(box.get(name, 0)) for name in ("x", "y", "width", "height")} for box in found]


def test_the_picture_of_a_training_names_each_stage_and_each_hook() -> None:
    tm = tiny_manager(extensions=default_extensions(files=False))
    told: list[dict[str, Any]] = json.loads(tm.explain(format="json"))
    names = {place["stage"] for place in told}
    names |= {hook["hook"] for place in told for hooks in place["hooks"].values() for hook in hooks}

    assert {word for text in texts_of(tm.explain(format="svg")) for word in re.split(r"[ \n]", text)} >= names


def test_hooks_stand_around_the_stages_inside_and_a_stage_is_drawn_once() -> None:
    assert texts_of(Loop([Marked()]).explain(format="svg")) == [
        "Loop",
        "run",
        "defines epoch_num",
        "pre    1. Marked.pre_run",
        "step",
        "defines batch, loss",
        "post   1. Marked.post_step  reads loss, batch",
        "eval",
        "defines result",
        "test",
        "eval  as above",
    ]


def test_a_box_lies_within_the_box_around_it() -> None:
    run, step, *others = boxes_of(Loop([Marked()]).explain(format="svg"))

    for inner in (step, *others):
        assert run["x"] < inner["x"]
        assert inner["x"] + inner["width"] < run["x"] + run["width"]
        assert run["y"] < inner["y"]
        assert inner["y"] + inner["height"] < run["y"] + run["height"]
    assert step["y"] + step["height"] <= others[0]["y"]


def test_what_could_not_be_read_is_told_in_the_picture() -> None:
    class Fits(Extensible):
        def fit(self, name: str) -> None:
            with self.staged(name):
                pass

    assert texts_of(Fits().explain(format="svg"))[-1].startswith("unknown: a stage whose name is made at run time")


def test_a_name_is_text_and_never_an_element() -> None:
    assert texts_of(picture("Outer.<locals>.Loop", [], ["a & b"])) == ["Outer.<locals>.Loop", "unknown: a & b"]


def test_a_notebook_shows_the_picture() -> None:
    drawn = Loop().explain(format="svg")

    assert drawn._repr_svg_() == drawn  # type: ignore[attr-defined]


def test_a_part_of_the_tree_is_refused() -> None:
    with pytest.raises(ValueError, match=r'^format="svg" draws the whole tree: explain\(format="svg"\)$'):
        Loop().explain("loss", format="svg")
