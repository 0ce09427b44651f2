"""The folder for the files of extensions, and what takes its place."""

from __future__ import annotations

import copy
import itertools
import os
from pathlib import Path

import pytest
import torch

from tests.support.refusals import refusal
from train_manager.files import train_dirs
from train_manager.files.train_dirs import OF, STEPS, TRAIN_DIR, make_train_dir, require_train_dir, train_dir_of
from train_manager.testing import tiny_manager


@pytest.fixture
def first_of_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Count the TrainManagers anew."""
    monkeypatch.setattr(train_dirs, "_numbers", itertools.count(1))


def test_a_number_as_train_dir_is_refused() -> None:
    assert refusal(lambda: require_train_dir(5)) == (  # type: ignore[arg-type]
        'train_dir must be a path, but is 5\n  give a path: train_dir="runs/first"'
    )


# ---- before a run --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("below", ["", "deeper"])
def test_a_file_as_train_dir_is_refused(tmp_path: Path, below: str) -> None:
    path = tmp_path / "file"
    path.touch()
    assert refusal(lambda: make_train_dir(path / below)) == (
        f"train_dir must be a folder, but a file is in the way: {str(path / below)!r}\n  give the path of a folder"
    )


@pytest.mark.usefixtures("first_of_process")
def test_an_environment_variable_takes_the_place_of_the_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(TRAIN_DIR, str(tmp_path / "again"))

    folders = [tiny_manager(train_dir=given).train_dir for given in ("runs/a", None, "runs/b")]

    assert folders == [tmp_path / "again", None, tmp_path / "again-2"]


@pytest.mark.usefixtures("first_of_process")
def test_beside_the_folder_that_is_meant_each_other_one_has_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Processes of a program all have these variables: none takes the folder of another."""
    monkeypatch.setenv(TRAIN_DIR, str(tmp_path / "again"))
    monkeypatch.setenv(OF, os.path.abspath("runs/b"))

    a, b, again, c = (tiny_manager(train_dir=given).train_dir for given in ("runs/a", "runs/b", Path("runs/./a"), "c"))

    assert b == tmp_path / "again"
    assert a == again
    assert a != c
    assert [path.name[:6] for path in (a, c) if path is not None] == ["again-", "again-"]


@pytest.mark.usefixtures("first_of_process")
def test_trainings_with_a_folder_are_counted() -> None:
    numbers = [tiny_manager(train_dir=given).train_dir_number for given in ("runs/a", None, "runs/b")]

    assert numbers == [1, None, 2]


@pytest.mark.usefixtures("first_of_process")
def test_the_training_of_a_number_stops_after_the_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(STEPS, "2:100")

    found = [train_dir_of(given) for given in ("runs/a", None, "runs/b", "runs/c")]

    assert [one.step_limit for one in found] == [None, None, 100, None]


@pytest.mark.usefixtures("first_of_process")
def test_the_training_that_stops_has_the_folder_that_is_meant(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(OF, os.path.abspath("runs/b"))
    monkeypatch.setenv(STEPS, "2:100")

    assert [train_dir_of(given).step_limit for given in ("runs/a", "runs/b", "runs/b")] == [None, 100, None]
    monkeypatch.setenv(STEPS, "4:100")
    assert train_dir_of("runs/c").step_limit is None


@pytest.mark.parametrize("text", ["100", "1:", ":5", "a:b", "1:-5", "1:2:3"])
def test_a_limit_of_another_form_is_refused(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setenv(STEPS, text)

    assert refusal(lambda: train_dir_of("runs/a")) == (
        f"TRAIN_MANAGER_STEPS is {text!r}\n"
        "  give the number of a TrainManager and that of its steps: TRAIN_MANAGER_STEPS=1:100"
    )


def test_each_training_has_a_name_of_its_own() -> None:
    assert tiny_manager().run_id != tiny_manager().run_id


def test_a_copy_has_a_run_id_of_its_own() -> None:
    tm = tiny_manager(optimizer=torch.optim.SGD)

    assert copy.deepcopy(tm).run_id != tm.run_id


@pytest.mark.parametrize("below", ["", "first"])
def test_a_link_to_nothing_in_the_way_of_a_train_dir_is_told(tmp_path: Path, below: str) -> None:
    link = tmp_path / "runs"
    link.symlink_to("/not/mounted")

    assert refusal(lambda: make_train_dir(link / below)) == (
        f"train_dir {str(link / below)!r} leads through the link {str(link)!r} to '/not/mounted', which is not there\n"
        "  mount or make that folder, or give another train_dir"
    )
