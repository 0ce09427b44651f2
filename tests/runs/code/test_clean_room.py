"""The git folder of our own has the repository's commit and index, and none of its settings that run programs."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import pytest
from train_manager.runs.code.clean_room import clean_room, quote, read_small

from tests.runs.code.repositories import git, repository, write
from train_manager.runs.code.facts import find_repository


def test_the_index_keeps_its_time(tmp_path: Path) -> None:
    root = repository(tmp_path / "lab", {"a.py": b"a"})
    os.utime(root / ".git/index", ns=(1, 1_234_567_891_234_567_891))

    with clean_room(find_repository(root)) as room:
        assert (room.folder / "index").stat().st_mtime_ns == 1_234_567_891_234_567_891


def test_both_parts_of_a_split_index_are_there(tmp_path: Path) -> None:
    root = repository(tmp_path / "lab", {"a.py": b"a"})
    git(root, "update-index", "--split-index")
    (root / f".git/sharedindex.{'ab' * 20}").write_bytes(b"of long ago")

    with clean_room(find_repository(root)) as room:
        assert room.git.run("ls-files") == b"a.py\n"
        assert len(list(room.folder.glob("sharedindex.*"))) == 1


def test_nothing_is_left_of_it(tmp_path: Path) -> None:
    root = repository(tmp_path / "lab", {"a.py": b"a"})
    with clean_room(find_repository(root)) as room:
        pass

    assert not room.folder.exists()


def test_no_setting_of_the_repository_counts(tmp_path: Path) -> None:
    root = repository(tmp_path / "lab", {"a.py": b"a"})
    for name in ("core.fsmonitor", "diff.external", "core.pager", "core.sshCommand", "alias.ls", "include.path"):
        git(root, "config", name, "touch canary")

    with clean_room(find_repository(root)) as room:
        names = {line.partition(b"=")[0] for line in room.git.run("config", "--list").splitlines()}

    assert not {b"diff.external", b"core.sshcommand", b"alias.ls", b"include.path"} & names


def test_what_the_user_ignores_everywhere_is_ignored(tmp_path: Path) -> None:
    root = repository(tmp_path / "lab", {"a.py": b"a"})
    write(tmp_path, {"my ignored": b"*.tmp\n"})
    git(root, "config", "core.excludesFile", str(tmp_path / "my ignored"))
    write(root, {"x.tmp": b"", "x.log": b"", "x.py": b"", ".git/info/exclude": b"*.log\n"})

    with clean_room(find_repository(root)) as room:
        assert room.git.run("ls-files", "--others", "--exclude-standard") == b"x.py\n"


def test_a_text_is_quoted_as_git_reads_it() -> None:
    assert quote('a"b\\c\nd\te') == '"a\\"b\\\\c\\nd\\te"'


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs pipes")
def test_a_pipe_is_not_read(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")

    assert read_small(tmp_path / "pipe") == b""
    assert read_small(tmp_path / "nowhere") == b""
    assert read_small(tmp_path) == b""


def test_what_a_killed_process_left_goes_after_a_day(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    root = repository(tmp_path / "lab", {"a.txt": b"a\n"})
    for name in ("train-manager-git-old", "train-manager-git-young"):
        (tmp_path / name).mkdir()
    os.utime(tmp_path / "train-manager-git-old", (1_000_000_000, 1_000_000_000))

    with clean_room(find_repository(root)):
        pass

    assert [path.name for path in tmp_path.glob("train-manager-git-*")] == ["train-manager-git-young"]
