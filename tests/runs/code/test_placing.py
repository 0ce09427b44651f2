"""Files are put below a folder, and nothing leads out of it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from train_manager.runs.code.placing import put_file
from train_manager.runs.code.reading import FILE, LINK


@pytest.mark.parametrize("name", ["../out", "/out", "a/../../out", "a//b", ".", "", "a/./b", "a\0b"])
def test_a_name_that_leads_out_is_refused(tmp_path: Path, name: str) -> None:
    (tmp_path / "in").mkdir()

    assert put_file(tmp_path / "in", name, FILE, b"x") == "its name leads out of the folder"
    assert os.listdir(tmp_path) == ["in"]
    assert os.listdir(tmp_path / "in") == []


@pytest.mark.parametrize("name", [".git/config", "a/.git/hooks/post-checkout", ".GIT/config", ".git. /x"])
def test_a_name_in_a_git_folder_is_refused(tmp_path: Path, name: str) -> None:
    assert put_file(tmp_path, name, FILE, b"x") == "its name leads into a git folder"


def test_nothing_is_written_through_a_link_to_a_folder(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    put_file(tmp_path / "in", "door", LINK, b"..")

    reason = put_file(tmp_path / "in", "door/out", FILE, b"x")

    assert reason == "door is a link, and nothing is written through links"
    assert os.listdir(tmp_path) == ["in"]


def test_nothing_is_written_through_a_link_to_a_file(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "out").write_bytes(b"mine")
    put_file(tmp_path / "in", "door", LINK, b"../out")

    assert put_file(tmp_path / "in", "door", FILE, b"x") is None
    assert (tmp_path / "out").read_bytes() == b"mine"
    assert (tmp_path / "in/door").read_bytes() == b"x"


def test_a_file_in_the_place_of_a_folder_is_told(tmp_path: Path) -> None:
    put_file(tmp_path, "a", FILE, b"x")

    assert put_file(tmp_path, "a/b", FILE, b"x") == "a is a file where a folder is needed"
    put_file(tmp_path, "c/d", FILE, b"x")
    assert put_file(tmp_path, "c", FILE, b"x") == "a folder is in its place"
