"""docs/how-to/coming-from.md names nothing of this library that is not there."""

from __future__ import annotations

import importlib
import re
from pathlib import Path

import pytest

import train_manager
import train_manager.extensions
from train_manager.core.foreign_names import FOREIGN_NAMES
from train_manager.testing import tiny_manager

PAGE = Path(__file__).parents[1] / "docs" / "how-to" / "coming-from.md"
FOREIGN = {"ReduceLROnPlateau"}  # of torch
TOOLS = list(dict.fromkeys(known.tool for known in FOREIGN_NAMES))


def here() -> set[str]:
    """The code in the column "here" of every table: the first of the first table, the second of the others."""
    _, moments, *libraries = PAGE.read_text().split("\n## ")
    columns = [(moments, 1), *((part, 2) for part in libraries)]
    rows = [(line.split(" | "), column) for part, column in columns for line in part.splitlines() if line[:3] == "| `"]
    cells = [("| ".join(row[1:]) if column == 2 else row[0]) for row, column in rows]
    return {code for cell in cells for code in re.findall(r"`([^`]+)`", cell)}


def names_of(tool: str) -> dict[str, str]:
    """The last table in the section of a tool: its names of hooks, and what stands beside each."""
    section = next(part for part in PAGE.read_text().split("\n## ") if part.startswith(f"{tool}\n"))
    table = section.rstrip().rpartition(f"| {tool} | here |")[2]
    return dict(re.findall(r"^\| `([^`]+)` \| (.+) \|$", table, re.MULTILINE))


@pytest.mark.parametrize("tool", TOOLS)
def test_the_page_and_the_refusals_have_the_same_names_of_hooks(tool: str) -> None:
    decorated = {known: f" with `{known.decorator.strip()}`" if known.decorator else "" for known in FOREIGN_NAMES}
    assert names_of(tool) == {
        known.name: f"`{known.here}`{decorated[known]}" if known.here else "\N{EN DASH}"
        for known in FOREIGN_NAMES
        if known.tool == tool
    }


@pytest.mark.parametrize("tool", ["Lightning", "Keras", "Ignite"])
def test_the_table_of_points_says_what_the_refusals_say(tool: str) -> None:
    rows = [line.strip("| ").split(" | ") for line in PAGE.read_text().splitlines() if line.startswith("| ")]
    column = rows[0].index(tool)
    counterparts = {known.name: known.here for known in FOREIGN_NAMES if known.tool == tool}
    there = {row[column].strip("`"): row[0].strip("`") for row in rows[1:12] if row[0].startswith("`p")}
    assert {name: counterparts[name] for name in there if name in counterparts} == {
        name: here for name, here in there.items() if name in counterparts
    }
    assert len(there.keys() & counterparts.keys()) >= 6


def test_lightning_and_keras_come_first() -> None:
    assert re.findall("^## (.*)$", PAGE.read_text(), re.MULTILINE)[1:3] == ["Lightning", "Keras"]


NAMES = {name for code in here() for name in re.findall(r"(?<![\w.\"])@?[A-Za-z_][\w.]*", code)}
CLASSES = (
    {name for name in NAMES if re.fullmatch(r"[A-Z]+[a-z]\w*|EMA|SAM", name)} - {"None", "True", "False"} - FOREIGN
)
MARKS = {name[1:] for name in NAMES if name.startswith("@")}
METHODS = {name[3:] for name in NAMES if name.startswith("tm.")}


@pytest.mark.parametrize("name", sorted(CLASSES))
def test_an_extension_or_a_class_that_is_named_is_there(name: str) -> None:
    assert hasattr(train_manager, name) or hasattr(train_manager.extensions, name)


@pytest.mark.parametrize("name", sorted(MARKS))
def test_a_mark_that_is_named_is_there(name: str) -> None:
    assert hasattr(train_manager, name) or hasattr(importlib.import_module("train_manager.schedules"), name)


@pytest.mark.parametrize("name", sorted(METHODS))
def test_what_a_manager_is_asked_for_is_there(name: str) -> None:
    assert hasattr(tiny_manager(), name)


@pytest.mark.parametrize("name", sorted(n for n in NAMES if n.startswith("torch.")))
def test_what_is_named_of_torch_is_there(name: str) -> None:
    parts = name.split(".")
    assert hasattr(importlib.import_module(".".join(parts[:-1])), parts[-1])
