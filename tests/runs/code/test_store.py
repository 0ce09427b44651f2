"""What a record keeps is stored once, and a killed process leaves nothing that misleads."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.runs.code.repositories import RUN, repository, write
from train_manager.runs.code.store import keep, kept, remove_leftovers
from train_manager.runs.code.taking import take_code_record


def test_a_content_that_is_there_is_not_written_again(tmp_path: Path) -> None:
    place = tmp_path / "code/files" / keep(tmp_path, b"x")
    before = place.stat()

    keep(tmp_path, b"x")

    assert place.stat() == before


def test_a_content_that_was_cut_off_is_written_again(tmp_path: Path) -> None:
    digest = keep(tmp_path, b"a longer one")
    (tmp_path / "code/files" / digest).write_bytes(b"a lon")

    keep(tmp_path, b"a longer one")

    assert kept(tmp_path, digest, 12) == b"a longer one"


def test_a_content_that_is_longer_than_its_record_says_is_not_read(tmp_path: Path) -> None:
    assert kept(tmp_path, keep(tmp_path, b"a longer one"), 5) is None


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs processes that can be forked")
@pytest.mark.parametrize("moment", ["collecting.keep", "taking.replace_file"])
def test_a_process_that_is_killed_leaves_no_record(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    root = repository(tmp_path / "lab", {"train.py": b"1"})
    write(root, {"train.py": b"2", "new.py": b"n"})
    child = os.fork()
    if child == 0:
        monkeypatch.setattr(f"train_manager.runs.code.{moment}", lambda *_: os._exit(9))
        take_code_record(root, tmp_path / "runs", RUN)
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 9

    assert not [*(tmp_path / "runs").rglob("*.json")]


def test_what_a_killed_process_left_goes_after_a_day(tmp_path: Path) -> None:
    write(tmp_path / "code/files", {".old.1-2": b"x", ".new.1-3": b"x"})
    os.utime(tmp_path / "code/files/.old.1-2", (1, 1))

    remove_leftovers(tmp_path)

    assert os.listdir(tmp_path / "code/files") == [".new.1-3"]
