"""The git folder of our own has none of a user's settings that run programs, and nothing is left of it."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import pytest

from tests.runs.code.repositories import git, repository
from train_manager.runs.code.git_folder import NAME, git_folder, read_small


def test_a_relative_folder_is_that_of_this_process_and_not_of_git(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = repository(tmp_path / "lab", {"a.py": b"a"})
    commit = git(root, "rev-parse", "HEAD").decode().strip()
    monkeypatch.chdir(tmp_path)

    with git_folder() as own:
        assert own.reading(Path("lab/.git/objects")).run("cat-file", "-t", commit) == b"commit\n"


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs pipes")
def test_a_pipe_is_not_read(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")

    assert [read_small(tmp_path / name) for name in ("pipe", "nowhere", ".")] == [b""] * 3


def test_what_a_killed_process_left_goes_after_a_day(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    old, young, of_another_user = f".tmp-{NAME}-00000000", f".tmp-{NAME}-00000001", f".tmp-{NAME}0-00000000"
    for name in (old, young, of_another_user):
        (tmp_path / name).mkdir()
        os.utime(tmp_path / name, None if name == young else (1, 1))

    with git_folder():
        pass

    assert sorted(os.listdir(tmp_path)) == [young, of_another_user]
