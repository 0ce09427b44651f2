"""What killed processes have left is removed, and nothing else."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from train_manager.files.atomic import temporary_beside
from train_manager.files.leftovers import A_DAY, delete, remove_leftovers


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_half_written_files_and_folders_are_removed(tmp_path: Path) -> None:
    (tmp_path / ".tmp-run.json-0f3c5b7a").write_text("{")
    (tmp_path / ".tmp-step-12-0f3c5b7a/deep").mkdir(parents=True)
    remove_leftovers(tmp_path)

    assert names(tmp_path) == []


def test_a_folder_that_is_missing_has_no_leftovers(tmp_path: Path) -> None:
    remove_leftovers(tmp_path / "missing")

    assert names(tmp_path) == []


def test_what_others_may_still_be_writing_stays_for_a_while(tmp_path: Path) -> None:
    for name in ("tmp_pack_old", "tmp_pack_young", "pack-old"):
        (tmp_path / name).touch()
        os.utime(tmp_path / name, (1, 1) if name.endswith("old") else None)
    remove_leftovers(tmp_path, "tmp_*", after=A_DAY)

    assert names(tmp_path) == ["pack-old", "tmp_pack_young"]


def test_a_leftover_that_another_process_removes_meanwhile_is_passed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def listed(folder: Path, names: str) -> list[Path]:
        return [folder / "tmp_pack_gone"]

    monkeypatch.setattr(Path, "glob", listed)
    remove_leftovers(tmp_path, "tmp_*", after=A_DAY)

    assert names(tmp_path) == []


@pytest.mark.parametrize("name", ["digits", "two\nlines", "with-dashes-7", ".hidden"])
def test_the_names_that_are_written_under_are_known_again(tmp_path: Path, name: str) -> None:
    temporary_beside(tmp_path / name).touch()
    remove_leftovers(tmp_path)

    assert names(tmp_path) == []


@pytest.mark.parametrize("name", [".tmp-notes", ".tmp-a-7", "tmp-a-0f3c5b7a", ".tmp-a-tomorrow"])
def test_files_of_the_user_stay(tmp_path: Path, name: str) -> None:
    (tmp_path / name).touch()
    remove_leftovers(tmp_path)

    assert names(tmp_path) == [name]


def test_a_link_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "kept").mkdir()
    (link := tmp_path / ".tmp-a-0f3c5b7a").symlink_to(tmp_path / "kept")
    remove_leftovers(tmp_path)

    assert names(tmp_path) == [link.name, "kept"]


def test_what_is_deleted_by_two_is_deleted_once(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    delete(tmp_path / "a")
    delete(tmp_path / "a")

    assert names(tmp_path) == []
