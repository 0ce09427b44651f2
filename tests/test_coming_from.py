"""docs/how-to/coming-from.md names nothing of this library that is not there."""

from __future__ import annotations

import importlib
import re
from pathlib import Path

import pytest

import train_manager
import train_manager.extensions
from train_manager.testing import tiny_manager

PAGE = Path(__file__).parents[1] / "docs" / "how-to" / "coming-from.md"
FOREIGN = {"ReduceLROnPlateau"}  # of torch


def here() -> set[str]:
    """The code in the column "here" of every table: the first of the first table, the second of the others."""
    _, moments, *libraries = PAGE.read_text().split("\n## ")
    columns = [(moments, 1), *((part, 2) for part in libraries)]
    rows = [(line.split(" | "), column) for part, column in columns for line in part.splitlines() if line[:3] == "| `"]
    cells = [("| ".join(row[1:]) if column == 2 else row[0]) for row, column in rows]
    return {code for cell in cells for code in re.findall(r"`([^`]+)`", cell)}


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
