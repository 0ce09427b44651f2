"""What a record keeps is stored once, and a killed process leaves nothing that misleads."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.runs.code.repositories import RUN, repository, write
from train_manager.runs.code.store import Store, read_stored, remove_leftovers
from train_manager.runs.code.take import take_code_record


def test_a_content_that_is_there_is_not_written_again(tmp_path: Path) -> None:
    place = tmp_path / "code/files" / Store(tmp_path).keep(b"x")
    before = place.stat()

    Store(tmp_path).keep(b"x")

    assert place.stat() == before


def test_a_content_that_was_cut_off_is_written_again(tmp_path: Path) -> None:
    digest = Store(tmp_path).keep(b"a longer one")
    (tmp_path / "code/files" / digest).write_bytes(b"a lon")

    Store(tmp_path).keep(b"a longer one")

    assert read_stored(tmp_path, digest, 12) == b"a longer one"


def test_what_a_neighbour_has_takes_no_room(tmp_path: Path) -> None:
    digest = Store(tmp_path / "one").keep(b"x")

    Store(tmp_path / "two").keep(b"x")

    places = [tmp_path / name / "code/files" / digest for name in ("one", "two")]
    assert places[0].samefile(places[1])
    places[0].unlink()
    assert read_stored(tmp_path / "two", digest, 1) == b"x"


def test_a_file_of_a_neighbour_that_is_not_what_its_name_says_is_not_linked(tmp_path: Path) -> None:
    digest = Store(tmp_path / "one").keep(b"x")
    (tmp_path / "one/code/files" / digest).write_bytes(b"y")

    Store(tmp_path / "two").keep(b"x")

    assert read_stored(tmp_path / "two", digest, 1) == b"x"


def test_where_files_cannot_be_linked_they_are_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError("links are not known here")

    digest = Store(tmp_path / "one").keep(b"x")
    monkeypatch.setattr(os, "link", refuse)

    Store(tmp_path / "two").keep(b"x")

    assert read_stored(tmp_path / "two", digest, 1) == b"x"


def test_a_content_that_is_longer_than_its_record_says_is_not_read(tmp_path: Path) -> None:
    assert read_stored(tmp_path, Store(tmp_path).keep(b"a longer one"), 5) is None


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs processes that can be forked")
@pytest.mark.parametrize("moment", ["store.Store.keep", "taking.replace_file"])
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
