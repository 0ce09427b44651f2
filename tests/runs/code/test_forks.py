"""Workers of a DataLoader are forked while git runs in a thread: neither may wait for the other."""

from __future__ import annotations

import os
import signal
import threading
from pathlib import Path
from typing import Any

import pytest

from tests.runs.code.repositories import repository
from train_manager.runs.code import git as git_commands
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


def test_no_process_is_forked_while_another_thread_makes_a_pipe_to_git() -> None:
    is_making, is_over = threading.Event(), threading.Event()
    state = {"in between": False}

    def make() -> None:
        while not is_over.is_set():
            with git_commands._starting:
                state["in between"] = True
                is_making.set()
                sum(range(20_000))  # as long as a pipe takes
                state["in between"] = False

    thread = threading.Thread(target=make)
    thread.start()
    is_making.wait()
    codes = []
    for _ in range(5):
        pid = os.fork()
        if pid == 0:
            os._exit(int(state["in between"]))
        codes.append(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
    is_over.set()
    thread.join()

    assert codes == [0] * 5
