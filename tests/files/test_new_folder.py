"""A folder is there as a whole or not at all."""

from __future__ import annotations

from pathlib import Path

import pytest

from train_manager import InputError
from train_manager.files.new_folder import new_folder


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
