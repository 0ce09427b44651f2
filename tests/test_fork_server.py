"""The processes that tests start and kill."""

from __future__ import annotations

import os
import signal
import time

import pytest

from tests.support.fork_server import ForkServer

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="processes are not forked here")


def hangs() -> None:
    print("hangs")
    time.sleep(600)


def fails() -> None:
    raise ValueError("no such task")


def test_its_error_is_shown_as_that_of_a_script(fork_server: ForkServer) -> None:
    child = fork_server.start(fails)

    assert child.wait() == 1
    assert child.errors.endswith("\nValueError: no such task\n")


def test_one_that_hangs_is_ended_and_says_where_it_was(fork_server: ForkServer) -> None:
    child = fork_server.start(hangs)
    child.wait_for("hangs")

    with pytest.raises(AssertionError, match=r"the child did not end in 0\.1 s:\n(.*\n)*.* in hangs\n"):
        child.wait(seconds=0.1)


@pytest.mark.whole  # a server of its own imports torch
def test_children_that_are_left_end_with_the_server() -> None:
    with ForkServer() as server:
        child = server.start(hangs)
        child.wait_for("hangs")

    assert child.code == -signal.SIGKILL
