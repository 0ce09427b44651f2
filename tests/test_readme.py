"""The README claims nothing that is not there: its pictures and its numbers."""

from __future__ import annotations

import importlib
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
BENCHMARKS = (ROOT / "docs" / "explanation" / "benchmarks.md").read_text(encoding="utf-8")


def test_its_pictures_are_drawn_from_what_explain_tells_today(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(ROOT / "docs" / "pictures")
    script = importlib.import_module("make_step")

    for theme, colors in script.THEMES.items():
        assert (script.FOLDER / f"step-{theme}.svg").read_text() == script.picture(colors), "run make_step.py"


def test_at_most_sixty_words_stand_before_its_first_code() -> None:
    words = re.findall(r"\w[\w-]*", re.sub(r"\]\([^)]*\)", "]", README.partition("```")[0]))

    assert len(words) <= 60


@pytest.mark.parametrize("section", ["Find what is wrong", "Kill it, and resume"])
def test_the_code_of_a_section_runs_without_the_code_above_it(
    section: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    code = README.partition(f"## {section}\n")[2].partition("```python\n")[2].partition("```")[0]

    exec(code, {})


def test_it_has_at_most_180_lines() -> None:
    assert len(README.splitlines()) <= 180


def test_its_kills_and_what_they_changed_are_those_of_the_page_of_kills() -> None:
    page = (ROOT / "docs" / "explanation" / "checkpoints-under-fire.md").read_text(encoding="utf-8")
    kills, outcome = re.findall(r"^\| killed trainings +\| +([\d,]+) \| +(.*?) \|", page, re.MULTILINE)[0]

    assert f"[{kills} kills](docs/explanation/checkpoints-under-fire.md) changed no bit" in README
    assert outcome == "0 of 2 trainings that differ in any bit"


def test_its_numbers_are_those_of_the_page_of_benchmarks() -> None:
    section = BENCHMARKS.partition("## One training step")[2].partition("\n## ")[0]
    measured = dict(re.findall(r"^\| ([\w ]+?) +\| [^|]+\| +([\d.]+) \[", section, re.MULTILINE))
    claimed = dict(re.findall(r"^\| (\w[\w ]*?) +\| +([\d.]+) x", README, re.MULTILINE))

    assert claimed.pop("your own loop") == measured["bare loop"]
    assert claimed == {name: measured[name] for name in claimed}
    assert len(claimed) == 4
    assert f"[{measured['Train Manager']} x](docs/explanation/benchmarks.md) a bare one" in README
