"""The processes that tests start and kill."""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path

import pytest

from tests.support.fork_server import ForkServer
from train_manager.testing import tiny_manager

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="processes are not forked here")


def trains(folder: str) -> None:
    print(tiny_manager().train().steps, os.getcwd() == folder, os.environ["OF_THE_CHILD"])


def hangs() -> None:
    print("hangs")
    time.sleep(600)


def exits(code: int) -> None:
    sys.exit(code)


def is_interrupted() -> None:
    raise KeyboardInterrupt


def fails() -> None:
    raise ValueError("no such task")


def test_a_child_calls_a_function_with_its_arguments_in_its_folder(fork_server: ForkServer, tmp_path: Path) -> None:
    child = fork_server.start(trains, str(tmp_path), cwd=tmp_path, OF_THE_CHILD="yes")

    assert (child.wait(), child.output, child.errors) == (0, "3 True yes\n", "")


def test_its_exit_code_is_that_of_a_script(fork_server: ForkServer) -> None:
    codes = [fork_server.start(exits, 99).wait(), fork_server.start(is_interrupted).wait()]

    assert codes == [99, -signal.SIGINT]


def test_its_error_is_shown_as_that_of_a_script(fork_server: ForkServer) -> None:
    child = fork_server.start(fails)

    assert child.wait() == 1
    assert child.errors.endswith("\nValueError: no such task\n")


def test_it_can_be_killed_at_what_it_prints(fork_server: ForkServer) -> None:
    child = fork_server.start(hangs)
    child.wait_for("hangs")
    child.signal(signal.SIGKILL)

    assert child.wait() == -signal.SIGKILL


def test_several_run_at_a_time(fork_server: ForkServer) -> None:
    first, second = fork_server.start(hangs), fork_server.start(hangs)
    for child in (first, second):
        child.wait_for("hangs")
    for child in (second, first):
        child.signal(signal.SIGTERM)

    assert (second.wait(), first.wait()) == (-signal.SIGTERM, -signal.SIGTERM)


def test_one_that_hangs_is_ended_and_says_where_it_was(fork_server: ForkServer) -> None:
    child = fork_server.start(hangs)
    child.wait_for("hangs")

    with pytest.raises(AssertionError, match=r"the child did not end in 0\.1 s:\n(.*\n)*.* in hangs\n"):
        child.wait(seconds=0.1)


def test_children_that_are_left_end_with_the_server() -> None:
    with ForkServer() as server:
        child = server.start(hangs)
        child.wait_for("hangs")

    assert child.code == -signal.SIGKILL
