"""What a record keeps appears as a whole, and a killed process leaves nothing that misleads."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.runs.code.repositories import RUN, repository, write
from train_manager.runs.code.payload import folder_to_fill, put_in_place
from train_manager.runs.code.taking import take_code_record


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in (folder / "code").iterdir())


def test_an_empty_folder_becomes_nothing(tmp_path: Path) -> None:
    with folder_to_fill(tmp_path) as folder:
        assert put_in_place(folder) is None

    assert names(tmp_path) == []


def test_the_same_content_has_the_same_name(tmp_path: Path) -> None:
    places = []
    for _ in range(2):
        with folder_to_fill(tmp_path) as folder:
            (folder / "changes.patch").write_bytes(b"x")
            places.append(put_in_place(folder))

    assert places[0] == places[1]
    assert [f"code/{name}" for name in names(tmp_path)] == places[:1]


def test_the_names_of_files_count_as_content(tmp_path: Path) -> None:
    places = set()
    for name in ("changes.patch", "files.tar"):
        with folder_to_fill(tmp_path) as folder:
            (folder / name).write_bytes(b"x")
            places.add(put_in_place(folder))

    assert len(places) == 2


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs processes that can be forked")
@pytest.mark.parametrize("moment", ["write_archive", "put_in_place", "replace_file"])
def test_a_process_that_is_killed_leaves_neither_a_record_nor_half_a_payload(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    root = repository(tmp_path / "lab", {"train.py": b"1"})
    write(root, {"train.py": b"2", "new.py": b"n"})
    room = "collecting" if moment == "write_archive" else "taking"
    child = os.fork()
    if child == 0:
        monkeypatch.setattr(f"train_manager.runs.code.{room}.{moment}", lambda *_: os._exit(9))
        take_code_record(root, tmp_path / "runs", RUN)
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 9

    visible = [name for name in names(tmp_path / "runs") if not name.startswith(".")]
    assert not [name for name in visible if name.endswith(".json")]
    assert all((tmp_path / "runs/code" / name / "files.tar").exists() for name in visible)


def test_what_a_killed_process_left_goes_after_a_day(tmp_path: Path) -> None:
    (tmp_path / "code/.part-1-old").mkdir(parents=True)
    (tmp_path / "code/.part-2-new").mkdir()
    os.utime(tmp_path / "code/.part-1-old", (1, 1))

    with folder_to_fill(tmp_path):
        pass

    assert names(tmp_path) == [".part-2-new"]
