"""What killed processes have left is removed, and nothing else."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from train_manager.files.atomic import temporary_beside
from train_manager.files.leftovers import delete, remove_leftovers

DEAD = 2**22 + 1  # above the largest number of a process that Linux gives


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_a_half_written_file_of_a_dead_process_is_removed_too(tmp_path: Path) -> None:
    for pid in (DEAD, os.getpid(), os.getppid()):
        (tmp_path / f".tmp-run.json-{pid}-0f3c5b").write_text("{")
    remove_leftovers(tmp_path)

    assert names(tmp_path) == [f".tmp-run.json-{os.getppid()}-0f3c5b"]


@pytest.mark.parametrize("name", ["digits", "two\nlines", "with-dashes-7", ".hidden"])
def test_the_names_that_are_written_under_are_known_again(tmp_path: Path, name: str) -> None:
    temporary_beside(tmp_path / name).touch()  # this process is taken for a dead one with its number
    remove_leftovers(tmp_path)

    assert names(tmp_path) == []


@pytest.mark.parametrize("name", [".tmp-notes", ".tmp-a-7", "tmp-a-7-0f3c5b", f".tmp-a-{DEAD}-later"])
def test_files_of_the_user_stay(tmp_path: Path, name: str) -> None:
    (tmp_path / name).touch()
    remove_leftovers(tmp_path)

    assert names(tmp_path) == [name]


def test_a_link_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "kept").mkdir()
    (link := tmp_path / f".tmp-a-{DEAD}-0f3c5b").symlink_to(tmp_path / "kept")
    remove_leftovers(tmp_path)

    assert names(tmp_path) == [link.name, "kept"]


def test_what_is_deleted_by_two_is_deleted_once(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    delete(tmp_path / "a")
    delete(tmp_path / "a")

    assert names(tmp_path) == []
