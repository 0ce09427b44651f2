"""The git folder of our own has none of a user's settings that run programs, and nothing is left of it."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import pytest

from tests.runs.code.repositories import git, repository
from train_manager.runs.code.git_folder import NAME, git_folder, quote, read_small, reading


def test_nothing_is_left_of_it() -> None:
    with git_folder() as git:
        assert git.git_folder is not None
        assert git.git_folder.exists()

    assert not git.git_folder.exists()


def test_no_setting_of_a_user_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / ".gitconfig").write_text("[diff]\n\texternal = touch canary\n")
    monkeypatch.setenv("HOME", str(tmp_path))

    with git_folder(tmp_path) as git:
        assert b"external" not in git.run("config", "--list")


@pytest.mark.parametrize("name", ["plain", "co:lon", 'quo"te', "new\nline", "back\\slash"])
def test_objects_elsewhere_are_read_whatever_the_name_of_their_folder(tmp_path: Path, name: str) -> None:
    root = repository(tmp_path / name, {"a.py": b"a"})
    commit = git(root, "rev-parse", "HEAD").decode().strip()

    with git_folder() as own:
        assert own.run("cat-file", "-t", commit, changes=reading(root / ".git/objects")) == b"commit\n"


def test_a_relative_folder_is_that_of_this_process_and_not_of_git(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = repository(tmp_path / "lab", {"a.py": b"a"})
    commit = git(root, "rev-parse", "HEAD").decode().strip()
    monkeypatch.chdir(tmp_path)

    with git_folder() as own:
        assert own.run("cat-file", "-t", commit, changes=reading(Path("lab/.git/objects"))) == b"commit\n"


def test_a_text_is_quoted_as_git_reads_it() -> None:
    assert quote('a"b\\c\nd\te') == '"a\\"b\\\\c\\nd\\te"'


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
