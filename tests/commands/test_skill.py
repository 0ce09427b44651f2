from __future__ import annotations

import configparser
import re
from pathlib import Path

import pytest

from train_manager import cli
from train_manager.commands.skill import SKILL

ROOT = Path(__file__).parents[2]


def test_the_skill_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["skill"]) == 0
    assert capsys.readouterr().out == SKILL.read_text()


def test_an_agent_finds_the_skill_by_its_name_and_its_description() -> None:
    head = re.match(r"---\nname: ([a-z-]+)\ndescription: (.*)\n---\n", SKILL.read_text())

    assert head is not None
    assert head[1] == "train-manager"
    assert len(head[2]) <= 1024  # what readers of skill files take


def test_the_skill_is_short_and_names_pages_that_are_there() -> None:
    text = SKILL.read_text()

    assert len(text.splitlines()) <= 120
    pages = re.findall(r"docs/[\w/-]+\.\w+", text)
    assert [page for page in pages if not (ROOT / page).is_file()] == []
    assert len(pages) > 5


def test_the_package_brings_the_skill() -> None:
    setup = configparser.ConfigParser()
    setup.read(ROOT / "setup.cfg")

    assert "skill/*.md" in setup["options.package_data"]["train_manager"]
