"""Git is asked so that it answers in time or is ended, and so that the environment leads it nowhere else."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.support.eventually import eventually
from tests.support.other_processes import is_running
from tests.support.refusals import refusal
from train_manager.runs.code import git as git_commands
from train_manager.runs.code.git import Git, GitTrouble


def hanging_git(folder: Path) -> Path:
    """A git that starts a child and hangs with it; both write down their ids."""
    program = folder / "git"
    program.write_text(f'#!/bin/sh\nsleep 1000 &\necho "$$ $!" > "{folder}/ids"\nwait\n')
    program.chmod(0o755)
    return program


def use_hanging_git(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let git hang from now on; the time to wait for its answer begins once it has written down the ids."""
    monkeypatch.setattr(git_commands.git_module().cmd.Git, "GIT_PYTHON_GIT_EXECUTABLE", str(hanging_git(folder)))
    start, ids = Git._start, folder / "ids"

    def started(*arguments: Any) -> Any:
        ids.unlink(missing_ok=True)
        handle = start(*arguments)
        eventually(lambda: ids.exists() and ids.read_text().endswith("\n"))
        return handle

    monkeypatch.setattr(Git, "_start", started)


def test_a_git_that_hangs_is_ended_with_its_children(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    use_hanging_git(tmp_path, monkeypatch)
    before = len(os.listdir("/proc/self/fd"))

    assert (
        refusal(lambda: Git(tmp_path, seconds=0.1).run("rev-parse", feed=b"x"), GitTrouble)
        == "git did not answer within 0.1 s"
    )
    assert len(os.listdir("/proc/self/fd")) == before  # no pipe is left open
    ids = [int(text) for text in (tmp_path / "ids").read_text().split()]
    eventually(lambda: not any(map(is_running, ids)))  # a killed process goes in its own time


def test_a_child_that_keeps_the_output_open_does_not_hold_up_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "git"
    waits = "while not os.path.exists('over'): time.sleep(0.02)"
    program.write_text(f"#!{sys.executable} -S\nimport os, time\nif os.fork() == 0: os.setsid()\n{waits}\n")
    program.chmod(0o755)
    monkeypatch.setattr(git_commands.git_module().cmd.Git, "GIT_PYTHON_GIT_EXECUTABLE", str(program))

    with pytest.raises(GitTrouble, match=r"git did not answer within 0\.2 s"):
        Git(tmp_path, seconds=0.2).run("rev-parse")  # would not come back before the child has ended

    (tmp_path / "over").touch()
