from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.runs.code import sample_records
from tests.runs.code.sample_records import committed, write
from train_manager.runs.code.differences import Change, CodeDifference, code_differences
from train_manager.runs.code.take import take_code_record

SCRIPT = "".join(f"line {number}\n" for number in range(1, 12)) + "lr=0.1\nepochs=3\n"


Between = Callable[..., CodeDifference]
Recorded = Callable[[Path, Path], tuple[Path, dict[str, Any]]]


def recorded_now(folder: Path, train_dir: Path) -> tuple[Path, dict[str, Any]]:
    return train_dir, take_code_record(folder, train_dir, "run")


@pytest.fixture(params=[sample_records.recorded, recorded_now], ids=["version 1", "version 2"])
def recorded(request: pytest.FixtureRequest) -> Recorded:
    found: Recorded = request.param
    return found


@pytest.fixture
def between(repository: Path, recorded: Recorded) -> Callable[..., CodeDifference]:
    """What a change of the working tree makes different."""

    def found(change: Callable[[], object], first: Callable[[], object] = lambda: None) -> CodeDifference:
        first()
        one = recorded(repository, repository.parent / "one")
        change()
        return code_differences(one, recorded(repository, repository.parent / "other"))

    return found


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """A repository with a script and a module."""
    committed(tmp_path / "work", {"train.py": SCRIPT, "net/model.py": "width = 8\n", "weights.bin": b"\0" * 9})
    return tmp_path / "work"


def list_differences(difference: CodeDifference) -> list[str]:
    assert difference.problems == ()
    return [str(file) for file in difference.files]


def test_the_same_code_does_not_differ(repository: Path, between: Between) -> None:
    assert list_differences(between(lambda: None)) == []


def test_a_changed_line_is_told_with_its_file(repository: Path, between: Between) -> None:
    found = between(lambda: write(repository, {"train.py": SCRIPT.replace("0.1", "0.2")}))

    assert list_differences(found) == ["train.py line 12: - lr=0.1 + lr=0.2"]
    assert found.files[0].changes == (Change(12, ("lr=0.1",), ("lr=0.2",)),)


def test_a_change_of_a_change_needs_no_repository(repository: Path, recorded: Recorded) -> None:
    one = {"train.py": SCRIPT.replace("line 1\n", "import os\nline 1\n").replace("0.1", "0.3")}
    other = {"train.py": SCRIPT.replace("0.1", "0.2")}
    write(repository, one)
    first = recorded(repository, repository.parent / "one")
    write(repository, other)
    second = recorded(repository, repository.parent / "other")
    shutil.rmtree(repository)

    assert list_differences(code_differences(first, second)) == ["train.py line 1: - import os (and 1 more place)"]
    assert str(code_differences(first, second).files[0].changes[1]) == "line 13: - lr=0.3 + lr=0.2"


def test_files_that_only_a_run_has_are_told(repository: Path, between: Between) -> None:
    def change() -> None:
        write(repository, {"new.py": "x = 1\n"})
        (repository / "net" / "model.py").unlink()

    assert list_differences(between(change)) == [
        "net/model.py: only in the first run",
        "new.py: only in the second run",
    ]


def test_new_files_are_compared_by_their_lines(repository: Path, between: Between) -> None:
    found = between(
        lambda: write(repository, {"new.py": "x = 1\ny = 3\n"}),
        first=lambda: write(repository, {"new.py": "x = 1\ny = 2\n"}),
    )

    assert list_differences(found) == ["new.py line 2: - y = 2 + y = 3"]


def test_of_binary_files_the_sizes_are_told(repository: Path, between: Between) -> None:
    assert list_differences(between(lambda: write(repository, {"weights.bin": b"\0" * 12}))) == [
        "weights.bin: binary, of 9 and 12 bytes"
    ]


def test_a_mode_is_told(repository: Path, between: Between) -> None:
    assert list_differences(between(lambda: (repository / "train.py").chmod(0o755))) == [
        "train.py: mode as in the commit and 100755"
    ]


def test_a_newline_at_the_end_is_told(repository: Path, between: Between) -> None:
    found = between(lambda: write(repository, {"net/model.py": "width = 8"}))

    assert list_differences(found) == ["net/model.py line 1: - width = 8 + width = 8 (without a newline at the end)"]


def test_other_commits_are_compared_file_by_file(repository: Path, between: Between) -> None:
    found = between(lambda: committed(repository, {"train.py": SCRIPT.replace("0.1", "0.2"), "b.py": ""}))

    assert list_differences(found) == ["b.py: only in the second run", "train.py line 12: - lr=0.1 + lr=0.2"]


def test_a_change_that_was_committed_later_is_not_a_difference(repository: Path, between: Between) -> None:
    write(repository, {"train.py": SCRIPT.replace("0.1", "0.2"), "new.py": "x = 1\n"})

    assert list_differences(between(lambda: committed(repository, {}))) == []


def test_commits_that_are_gone_are_told(repository: Path, recorded: Recorded) -> None:
    one = recorded(repository, repository.parent / "one")
    committed(repository, {"train.py": SCRIPT.replace("0.1", "0.2")})
    other = recorded(repository, repository.parent / "other")
    shutil.rmtree(repository)

    found = code_differences(one, other)

    commit = one[1]["repositories"][0]["commit"]
    assert found == CodeDifference(
        (),
        (
            f"{repository}, which had commit {commit:.7}, is not there any more, "
            "so only files are compared that both records hold",
        ),
    )


def test_cells_of_a_notebook_are_compared(tmp_path: Path) -> None:
    def run(name: str, text: str) -> tuple[Path, dict[str, object]]:
        write(tmp_path / name, {"code/ab/notebook.py": text})
        return tmp_path / name, {"repositories": [], "notebook": {"cells": 2, "file": "code/ab/notebook.py"}}

    found = code_differences(run("one", "a = 1\nb = 2\n"), run("other", "a = 1\nb = 3\n"))

    assert list_differences(found) == ["cells of the notebook line 2: - b = 2 + b = 3"]


def test_a_record_cannot_lead_out_of_its_folder(repository: Path, recorded: Recorded) -> None:
    (repository.parent / "secret").mkdir()
    write(repository.parent / "secret", {"changes.patch": "diff --git a/train.py b/train.py\n", "notebook.py": "key"})
    one, record = recorded(repository, repository.parent / "one")
    record["notebook"] = {"file": "code/../../secret/notebook.py"}
    write(repository, {"train.py": "changed\n"})
    other, changed = recorded(repository, repository.parent / "other")
    changed["repositories"][0].update(payload="../secret", diff="../secret/changes.patch")
    changed["repositories"][0]["files"][0]["sha256"] = "../../../secret/notebook.py"

    found = code_differences((one, record), (other, changed))

    assert list_differences(found) == ["train.py: changed; its content is missing in the record"]
