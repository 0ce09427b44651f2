"""Workers of a DataLoader are forked while git runs in a thread: neither may wait for the other."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import pytest

from tests.runs.code.repositories import repository
from train_manager.runs.code.git import Git


def test_a_process_that_is_forked_while_git_runs_does_not_hold_it_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code, forked = repository(tmp_path / "code", {"train.py": b"x\n"}), []
    start = Git._start

    def started(*arguments: Any) -> Any:
        handle = start(*arguments)
        forked.append(os.fork())
        if forked[-1] == 0:  # a worker, which has what this process has open, and lives on
            signal.pause()
        return handle

    monkeypatch.setattr(Git, "_start", started)
    try:
        answer = Git(code, seconds=20).run("cat-file", "--batch-check=%(objecttype)", feed=b"HEAD\n")
    finally:
        for pid in forked:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)

    assert answer == b"commit\n"
