"""The two pages about coming from elsewhere name nothing of this library that is not there."""

from __future__ import annotations

import importlib
import re
from pathlib import Path

import pytest

import train_manager
import train_manager.extensions
from train_manager.testing import tiny_manager
from train_manager.words.hooks import HOOKS

DOCS = Path(__file__).parents[1] / "docs"
FIRST = DOCS / "how-to" / "coming-from.md"
TEXT = FIRST.read_text(encoding="utf-8") + (DOCS / "reference" / "coming-from-others.md").read_text(encoding="utf-8")
FOREIGN = {"AdamW", "ReduceLROnPlateau"}  # of torch
TOOLS = list(dict.fromkeys(known.tool for known in HOOKS))


def here() -> set[str]:
    """The code in the second column, "here", of every table."""
    rows = [line.split(" | ", 1) for line in TEXT.splitlines() if line[:3] == "| `"]
    return {code for _, cell in rows for code in re.findall(r"`([^`]+)`", cell)}


def test_lightning_and_keras_come_first() -> None:
    assert re.findall("^## (.*)$", FIRST.read_text(), re.MULTILINE) == ["Lightning", "Keras"]


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
