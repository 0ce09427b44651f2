from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.runs.code.repositories import RUN, git, write
from tests.runs.code.repositories import repository as new_repository
from train_manager.runs.code.differences import CodeDifference, FileChange, FileDifference, code_differences
from train_manager.runs.code.take import take_code_record

SCRIPT = "".join(f"line {number}\n" for number in range(1, 12)) + "lr=0.1\nepochs=3\n"


def committed(folder: Path, files: Mapping[str, bytes | str]) -> None:
    write(folder, files)
    git(folder, "add", "-A")
    git(folder, "commit", "-q", "--allow-empty", "-m", "work")


Between = Callable[..., CodeDifference]


def recorded(folder: Path, train_dir: Path) -> tuple[Path, dict[str, Any]]:
    return train_dir, take_code_record(folder, train_dir, RUN)


@pytest.fixture
def between(repository: Path) -> Callable[..., CodeDifference]:
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
    new_repository(tmp_path / "work")
    committed(tmp_path / "work", {"train.py": SCRIPT, "net/model.py": "width = 8\n", "weights.bin": b"\0" * 9})
    return tmp_path / "work"


def list_differences(difference: CodeDifference) -> list[str]:
    assert difference.problems == ()
    return [str(file) for file in difference.files]


def test_a_changed_line_is_told_with_its_file(repository: Path, between: Between) -> None:
    found = between(lambda: write(repository, {"train.py": SCRIPT.replace("0.1", "0.2")}))

    assert list_differences(found) == ["train.py line 12: - lr=0.1 + lr=0.2"]
    assert found.files[0].changes == (FileChange(12, ("lr=0.1",), ("lr=0.2",)),)


def test_a_change_of_a_change_needs_no_repository(repository: Path) -> None:
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


def test_of_binary_files_the_sizes_are_told(repository: Path, between: Between) -> None:
    assert list_differences(between(lambda: write(repository, {"weights.bin": b"\0" * 12}))) == [
        "weights.bin: binary, of 9 and 12 bytes"
    ]


def test_a_mode_is_told(repository: Path, between: Between) -> None:
    assert list_differences(between(lambda: (repository / "train.py").chmod(0o755))) == [
        "train.py: mode 100644 and 100755"
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


def test_a_file_whose_commit_is_gone_is_named(repository: Path) -> None:
    one = recorded(repository, repository.parent / "one")
    committed(repository, {"train.py": SCRIPT.replace("0.1", "0.2")})
    other = recorded(repository, repository.parent / "other")
    shutil.rmtree(repository)

    found = code_differences(one, other)

    commit = one[1]["repositories"][0]["commit"]
    gone = f"its content was in commit {commit:.7} of {repository}, which is not there any more"
    assert found == CodeDifference((FileDifference("train.py", f"changed; {gone}"),))


def test_cells_of_a_notebook_are_compared(tmp_path: Path) -> None:
    def run(name: str, text: str) -> tuple[Path, dict[str, object]]:
        write(tmp_path / name, {"code/ab.py": text})
        return tmp_path / name, {"repositories": [], "notebook": {"cells": 2, "file": "code/ab.py"}}

    found = code_differences(run("one", "a = 1\nb = 2\n"), run("other", "a = 1\nb = 3\n"))

    assert list_differences(found) == ["cells of the notebook line 2: - b = 2 + b = 3"]


def test_a_record_cannot_lead_out_of_its_folder(tmp_path: Path) -> None:
    write(tmp_path / "secret", {"notebook.py": "key"})
    (tmp_path / "run").mkdir()
    side = tmp_path / "run", {"repositories": [], "notebook": {"file": "code/../../secret/notebook.py"}}

    assert code_differences(side, (tmp_path / "run", {"repositories": []})) == CodeDifference(())


def test_a_store_with_a_link_is_not_compared(repository: Path) -> None:
    sides = [recorded(repository, repository.parent / name) for name in ("one", "other")]
    store = repository.parent / "one/code/git"
    store.rename(repository.parent / "elsewhere")
    store.symlink_to(repository.parent / "elsewhere")

    assert code_differences(*sides).problems == (f"the files are not compared: {store} has a link, {store}",)


def test_a_file_that_one_run_left_out_is_not_compared(repository: Path, between: Between) -> None:
    found = between(lambda: write(repository, {"net/model.py": "key = 'AKIAIOSFODNN7ABCDEFG'\n", "new.env": "x"}))

    left_out = "is not compared, as its content was left out"
    assert found == CodeDifference(
        (),
        (
            f"net/model.py {left_out}: it holds what looks like a key of AWS (line 1)",
            f"new.env {left_out}: its name is that of a secret file",
        ),
    )


def test_a_file_that_both_runs_left_out_is_told_if_its_time_differs(repository: Path, between: Between) -> None:
    secret = repository / ".env"
    secret.write_text("a=1")
    problem = ".env is not compared, as its content was left out: its name is that of a secret file"

    assert list_differences(between(lambda: None)) == []
    assert between(lambda: os.utime(secret, (1, 1))).problems == (problem,)


def test_a_link_and_a_file_are_told_apart(repository: Path, between: Between) -> None:
    def change() -> None:
        (repository / "train.py").unlink()
        (repository / "train.py").symlink_to("net/model.py")

    assert list_differences(between(change)) == ["train.py: a link in the second run, a file in the first"]


def test_many_lines_are_cut_off_and_large_files_are_not_compared_by_line(repository: Path, between: Between) -> None:
    found = between(lambda: write(repository, {"train.py": "x\n" * 1200, "net/model.py": "y\n" * 2_500_000}))

    assert [file.what for file in found.files] == ["changed; it is too large to be compared line by line", "changed"]
    assert found.files[1].changes[0].added[-1] == "(and 200 more lines)"
