"""Writing in a thread loses nothing: no write, no error, and no file that a program leaves half written."""

from __future__ import annotations

import subprocess
import sys
import threading
from pathlib import Path

import pytest

from train_manager.files.background import Background


class Gate:
    """A write that ends when it is let through."""

    def __init__(self) -> None:
        self.opened = threading.Event()
        self.running = 0
        self.most = 0
        self.written: list[int] = []

    def write(self, number: int) -> None:
        self.running += 1
        self.most = max(self.most, self.running)
        self.opened.wait(60)
        self.written.append(number)
        self.running -= 1


def fail(error: BaseException) -> None:
    raise error


def test_submit_does_not_wait_for_its_own_call() -> None:
    gate = Gate()
    background = Background(gate.write)
    background.submit(1)
    assert gate.written == []
    gate.opened.set()
    background.join()
    assert gate.written == [1]


def test_a_second_submit_waits_so_that_one_call_is_in_flight_and_none_is_lost() -> None:
    gate = Gate()
    background = Background(gate.write)
    background.submit(0)
    threading.Timer(0.01, gate.opened.set).start()
    for number in range(1, 20):
        background.submit(number)
    background.join()
    assert (gate.written, gate.most) == (list(range(20)), 1)


def test_an_error_comes_out_of_join_as_it_is_and_once() -> None:
    error = OSError("no")
    background = Background(fail)
    background.submit(error)
    with pytest.raises(OSError, match="no") as caught:
        background.join()
    assert caught.value is error
    background.join()


def test_an_error_comes_out_of_the_next_submit_which_starts_nothing() -> None:
    called: list[int] = []

    def write(number: int) -> None:
        called.append(number)
        raise OSError(f"{number} failed")

    background = Background(write)
    background.submit(1)
    with pytest.raises(OSError, match="1 failed"):
        background.submit(2)
    background.join()
    assert called == [1]


def test_join_without_a_call_does_nothing() -> None:
    Background(fail).join()


def test_a_program_that_ends_waits_for_the_write(tmp_path: Path) -> None:
    script = """
import sys, threading
from pathlib import Path
from train_manager.files.background import Background

def write(path):
    main.join()  # until the program has ended
    path.write_text("whole")

main = threading.main_thread()
Background(write).submit(Path(sys.argv[1]))
"""
    subprocess.run([sys.executable, "-c", script, str(tmp_path / "file")], check=True)

    assert (tmp_path / "file").read_text() == "whole"
