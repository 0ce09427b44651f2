"""The README claims nothing that is not there: its pictures, extensions and figures."""

from __future__ import annotations

import importlib
import re
from pathlib import Path

import pytest

from train_manager import extensions

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
BENCHMARKS = (ROOT / "docs" / "explanation" / "benchmarks.md").read_text(encoding="utf-8")


def test_its_pictures_are_drawn_from_what_explain_tells_today(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(ROOT / "docs" / "pictures")
    script = importlib.import_module("make_step")

    for theme, colors in script.THEMES.items():
        assert (script.FOLDER / f"step-{theme}.svg").read_text() == script.picture(colors), "run make_step.py"


def test_at_most_sixty_words_stand_before_its_first_picture() -> None:
    assert len(re.findall(r"\w[\w-]*", re.sub(r"\]\([^)]*\)", "]", README.partition("<picture>")[0]))) <= 60


def test_it_names_every_extension_that_ships() -> None:
    shipped = {name for name in extensions.__all__ if name != "default_extensions"}

    assert shipped - set(re.findall(r"`(\w+)`", README)) == set()


def test_its_figures_are_those_of_the_page_of_benchmarks() -> None:
    section = BENCHMARKS.partition("## One training step")[2].partition("\n## ")[0]
    measured = dict(re.findall(r"^\| ([\w ]+?) +\| [^|]+\| +([\d.]+) \[", section, re.MULTILINE))
    claimed = dict(re.findall(r"^\| (\w[\w ]*?) +\| +([\d.]+) x", README, re.MULTILINE))

    assert claimed.pop("your own loop") == measured["bare loop"]
    assert claimed == {name: measured[name] for name in claimed}
    assert len(claimed) == 4
