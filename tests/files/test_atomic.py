"""A file or folder that is written is there as a whole or not at all."""

from __future__ import annotations

from pathlib import Path

import pytest

from train_manager import InputError
from train_manager.files.atomic import free_path, new_folder, replace_file, temporary_beside


def test_a_file_is_replaced_as_a_whole(tmp_path: Path) -> None:
    path = tmp_path / "new" / "file"
    replace_file(path, b"old")
    with path.open("rb") as reader:
        replace_file(path, b"new")
        assert reader.read() == b"old"
    assert path.read_bytes() == b"new"


def test_a_file_that_cannot_be_written_leaves_nothing_behind(tmp_path: Path) -> None:
    (tmp_path / "file").mkdir()  # in the way
    with pytest.raises(OSError):  # noqa: PT011  # which one depends on the system
        replace_file(tmp_path / "file", b"new")
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_the_folder_gets_its_name_as_the_block_ends(tmp_path: Path) -> None:
    path = tmp_path / "deployed" / "digits"
    with new_folder(path) as folder:
        (folder / "report.md").touch()
        assert not path.exists()

    assert [one.name for one in path.iterdir()] == ["report.md"]
    assert [*path.parent.iterdir()] == [path]


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
def test_nothing_is_left_after_an_error(tmp_path: Path, error: type[BaseException]) -> None:
    with pytest.raises(error), new_folder(tmp_path / "digits") as folder:
        (folder / "report.md").touch()
        raise error

    assert [*tmp_path.iterdir()] == []


def test_a_folder_that_is_there_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    path = tmp_path / "digits"
    path.mkdir()
    with pytest.raises(InputError) as error, new_folder(path):
        raise AssertionError("the block runs")

    assert str(error.value) == (
        f"{path} is there already, and nothing is overwritten\n  give another folder, or move this one away"
    )


def test_a_link_to_nothing_has_the_name_too(tmp_path: Path) -> None:
    (tmp_path / "digits").symlink_to("nowhere")

    with pytest.raises(InputError, match="is there already"), new_folder(tmp_path / "digits"):
        raise AssertionError("the block runs")


def test_a_folder_that_somebody_makes_meanwhile_is_not_replaced(tmp_path: Path) -> None:
    path = tmp_path / "digits"
    with pytest.raises(InputError, match="is there already"), new_folder(path):
        path.mkdir()

    assert [*tmp_path.iterdir()] == [path]


def test_two_threads_never_write_under_one_name(tmp_path: Path) -> None:
    names = {temporary_beside(tmp_path / "file").name for _ in range(100)}

    assert len(names) == 100
    assert all(name.startswith(".tmp-file-") for name in names)


def test_a_path_that_is_taken_gets_the_first_free_number(tmp_path: Path) -> None:
    assert free_path(tmp_path / "a") == tmp_path / "a"
    (tmp_path / "a").mkdir()
    (tmp_path / "a-2").symlink_to("nowhere")
    assert free_path(tmp_path / "a") == tmp_path / "a-3"
