from __future__ import annotations

from pathlib import Path

import pytest

from train_manager.runs.repeating.paths import Moved


@pytest.fixture
def moved(tmp_path: Path) -> Moved:
    for folder in ("old/src", "old/.venv/bin", "old/empty", "new/src"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "old/.venv/pyvenv.cfg").touch()
    return Moved(tmp_path / "old", tmp_path / "new")


@pytest.mark.parametrize("form", ["{}/a.yaml", "--config={}/a.yaml", "data={}", "{}/a,{}/b", "{}"])
def test_absolute_paths_in_arguments_are_moved(moved: Moved, form: str) -> None:
    assert moved.text(form.format(moved.old, moved.old)) == form.format(moved.new, moved.new)


@pytest.mark.parametrize("form", ["src/a.py", "--lr=0.1", "{}er/a.yaml", "/other{}/a.yaml", "text {}", ""])
def test_other_arguments_stay_as_they_are(moved: Moved, form: str) -> None:
    argument = form.format(moved.old)

    assert moved.text(argument) == argument


def test_a_path_by_another_name_of_the_folder_is_moved(moved: Moved, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(moved.old)

    assert moved.text(f"{tmp_path}/link/src/a.py") == f"{moved.new}/src/a.py"


def test_a_path_that_leaves_the_folder_again_is_not_moved(moved: Moved, tmp_path: Path) -> None:
    assert moved.path(moved.old / ".." / "data") == tmp_path / "old" / ".." / "data"


def test_programs_of_an_environment_in_the_folder_stay_where_they_are(moved: Moved) -> None:
    program = str(moved.old / ".venv/bin/my-tool")

    assert moved.text(program) == program
    assert moved.text(f"--tool={program}") == f"--tool={program}"


def test_the_search_path_has_the_folders_that_the_copy_has_too(moved: Moved) -> None:
    old = moved.old
    entries = [f"{old}/src", "", "/usr/lib/python3", f"{old}/.venv/bin", f"{old}/empty", str(old), f"{old}/src"]

    assert moved.search_path(entries) == [f"{moved.new}/src", str(moved.new)]
