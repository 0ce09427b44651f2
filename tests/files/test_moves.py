"""A train_dir in the way is moved as a whole, and nothing is overwritten."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.refusals import refusal
from train_manager.errors import CheckpointError
from train_manager.files.lock import WriterLock
from train_manager.files.moves import move_away


@pytest.fixture
def train_dir(tmp_path: Path) -> Path:
    path = tmp_path / "digits"
    (path / "checkpoints" / "step-000000000001").mkdir(parents=True)
    (path / "notes.txt").write_text("first")
    return path


def test_the_whole_train_dir_goes_along(train_dir: Path) -> None:
    away = move_away(train_dir)

    assert away == train_dir.with_name("digits-before-1")
    assert sorted(path.name for path in away.iterdir()) == [".lock", "checkpoints", "notes.txt"]
    assert [*train_dir.iterdir()] == []


def test_a_second_move_gets_the_next_number(train_dir: Path) -> None:
    move_away(train_dir)
    (train_dir / "notes.txt").write_text("second")

    assert move_away(train_dir) == train_dir.with_name("digits-before-2")
    assert train_dir.with_name("digits-before-1").joinpath("notes.txt").read_text() == "first"


def test_a_train_dir_with_nothing_in_it_stays(tmp_path: Path) -> None:
    (tmp_path / "digits").mkdir()
    assert move_away(tmp_path / "digits") is None
    assert [path.name for path in tmp_path.iterdir()] == ["digits"]


def test_both_folders_can_be_locked_after_it(train_dir: Path) -> None:
    away = move_away(train_dir)
    assert away is not None

    with WriterLock(train_dir) as new, WriterLock(away) as old:
        assert new.is_enforced
        assert old.is_enforced


def test_a_training_that_still_writes_there_is_not_robbed(train_dir: Path) -> None:
    with WriterLock(train_dir), pytest.raises(CheckpointError, match="is being written by"):
        move_away(train_dir)
    assert (train_dir / "notes.txt").exists()


def test_the_folder_behind_a_link_is_moved_and_the_link_stays(train_dir: Path, tmp_path: Path) -> None:
    link = tmp_path / "link"
    link.symlink_to(train_dir)

    assert move_away(link) == train_dir.with_name("digits-before-1")
    assert link.resolve() == train_dir
    assert [*link.iterdir()] == []


def test_the_working_folder_is_not_moved(train_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(train_dir / "checkpoints")
    assert refusal(lambda: move_away(train_dir), CheckpointError) == (
        f"{train_dir} cannot be moved away, because the working folder is in it\n"
        "  give a train_dir of its own, such as 'runs/1'"
    )
    assert (train_dir / "notes.txt").exists()


def test_the_folder_of_the_program_is_not_moved(train_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("__main__.__file__", str(train_dir / "train.py"), raising=False)
    with pytest.raises(CheckpointError, match="because the running program is in it"):
        move_away(train_dir)


def test_a_refusal_of_the_system_is_told(train_dir: Path) -> None:
    long = train_dir.with_name("d" * 250)  # which leaves no room for "-before-1"
    train_dir.rename(long)
    assert (
        refusal(lambda: move_away(long), CheckpointError)
        == f"{long} cannot be moved to {long}-before-1: File name too long\n  give another train_dir"
    )
    assert (long / "notes.txt").exists()
