from __future__ import annotations

import os
import socket
from pathlib import Path
from typing import Any

import pytest

from train_manager.extensions import CodeRecord, MetricStore, RunRecord
from train_manager.runs.record.run_file import read_runs, run_file, write_entry
from train_manager.runs.repeating.ownership import reason_to_ask
from train_manager.runs.repeating.run_to_repeat import run_to_repeat
from train_manager.testing import tiny_manager


@pytest.fixture
def train_dir(tmp_path: Path) -> Path:
    tiny_manager(RunRecord(), MetricStore(), CodeRecord(), train_dir=tmp_path).train()
    return tmp_path


def reason(train_dir: Path) -> str | None:
    return reason_to_ask(run_to_repeat(train_dir))


def file_of(train_dir: Path) -> Path:
    return run_file(train_dir, read_runs(train_dir)[0]["id"])


def later(path: Path, seconds: float) -> None:
    found = path.stat()
    os.utime(path, (found.st_atime, found.st_mtime + seconds))


def edit(train_dir: Path, **parts: Any) -> None:
    entry = read_runs(train_dir)[0]
    write_entry(train_dir, {**entry, **parts})


def test_a_record_of_this_user_and_this_machine_is_not_asked_about(train_dir: Path) -> None:
    assert reason(train_dir) is None


def test_a_record_of_another_machine_is_asked_about(train_dir: Path) -> None:
    edit(train_dir, process={"pid": 1, "host": f"not-{socket.gethostname()}"})

    assert reason(train_dir) == f"it was recorded on another machine, 'not-{socket.gethostname()}'"


@pytest.mark.skipif(not hasattr(os, "getuid"), reason="needs users with numbers")
def test_a_record_of_another_user_is_asked_about(train_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    user = os.getuid()
    monkeypatch.setattr(os, "getuid", lambda: user + 1)

    assert reason(train_dir) == f"{file_of(train_dir)} belongs to another user"


def test_a_record_that_was_changed_after_its_end_is_asked_about(train_dir: Path) -> None:
    later(file_of(train_dir), 3600)

    assert reason(train_dir) == f"{file_of(train_dir)} was changed after the end of the run"


def test_a_code_record_that_was_changed_after_the_end_is_asked_about(train_dir: Path) -> None:
    (path,) = (train_dir / "code").glob("*.json")
    later(path, 3600)

    assert reason(train_dir) == f"{path} was changed after the end of the run"


def test_a_later_run_in_the_same_folder_changes_nothing(train_dir: Path) -> None:
    tiny_manager(RunRecord(), MetricStore(), train_dir=train_dir).train()
    first = read_runs(train_dir)[0]["id"]

    assert reason_to_ask(run_to_repeat(f"{train_dir}#{first}")) is None


def test_of_a_run_that_was_killed_the_end_is_not_known(train_dir: Path) -> None:
    edit(train_dir, outcome="running", ended=None)
    later(file_of(train_dir), 3600)

    assert reason(train_dir) is None
