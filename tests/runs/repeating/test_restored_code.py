from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.refusals import refusal
from train_manager.runs.repeating.paths import Moved
from train_manager.runs.repeating.restored_code import link_into, restored_code
from train_manager.runs.repeating.run_to_repeat import RunToRepeat


@pytest.fixture
def moved(tmp_path: Path) -> Moved:
    for name in ("old/data/digits.csv", "old/train.py", "new/train.py", "other.csv"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("1")
    return Moved(tmp_path / "old", tmp_path / "new")


def test_data_that_git_ignores_are_linked_into_the_copy(moved: Moved) -> None:
    link_into(moved, [Path("data")])

    assert (moved.new / "data" / "digits.csv").read_text() == "1"
    assert (moved.new / "data").is_symlink()


def test_of_a_folder_that_is_in_the_record_the_rest_is_linked(moved: Moved) -> None:
    (moved.new / "data").mkdir()
    (moved.new / "data" / "prepare.py").write_text("2")
    (moved.old / "data" / "prepare.py").write_text("3")
    link_into(moved, [Path("data")])

    assert (moved.new / "data" / "digits.csv").read_text() == "1"
    assert (moved.new / "data" / "prepare.py").read_text() == "2"


def test_data_are_those_of_the_repository_that_is_given(moved: Moved, tmp_path: Path) -> None:
    moved.old.rename(tmp_path / "clone")
    link_into(moved, [Path("data")], tmp_path / "clone")

    assert (moved.new / "data" / "digits.csv").read_text() == "1"


def test_what_the_record_has_is_not_linked(moved: Moved) -> None:
    assert (
        refusal(lambda: link_into(moved, [Path("train.py")]))
        == "train.py is in the record of the code\n  leave it out: it is there"
    )


@pytest.mark.parametrize("link", ["../other.csv", "missing.csv", "/etc"])
def test_what_is_not_in_the_repository_is_not_linked(moved: Moved, link: str) -> None:
    assert (
        refusal(lambda: link_into(moved, [Path(link)]))
        == f"{link} is not in the repository {moved.old}\n  give a path in it, relative to its folder: --link data"
    )


def test_cells_of_a_notebook_without_a_repository_run_in_an_empty_folder(tmp_path: Path) -> None:
    entry = {"id": "a", "command": {"kind": "notebook", "folder": "/home/me/notebooks"}}
    code = {"repositories": [], "notebook": {"cells": 2, "file": "code/a.py"}}
    (tmp_path / "code").mkdir()
    (tmp_path / "code/a.py").touch()

    found, problems = restored_code(RunToRepeat(tmp_path, entry, code), tmp_path / "code", None)

    assert found == Moved(Path("/home/me/notebooks"), tmp_path / "code")
    assert problems == []
