"""One writer in a train_dir at a time, between real processes."""

from __future__ import annotations

import copy
import errno
import fcntl
import os
import re
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from train_manager.errors import CheckpointError
from train_manager.files.atomic import quote_path
from train_manager.files.lock import WriterLock

HOLDER = """
import sys
from pathlib import Path
from train_manager.files.lock import WriterLock
with WriterLock(Path(sys.argv[1])):
    print("held", flush=True)
    sys.stdin.read()
"""

HOLDER_WITH_A_WORKER = """
import os, sys
from pathlib import Path
from train_manager.files.lock import WriterLock
with WriterLock(Path(sys.argv[1])):
    if os.fork() == 0:
        print("held", flush=True)
    os.read(0, 1)  # both wait
"""

PAIRS = """
import os, sys
from pathlib import Path
from train_manager.errors import CheckpointError
from train_manager.files.lock import WriterLock

def race(train_dir):
    start, result, end = os.pipe(), os.pipe(), os.pipe()
    for _ in range(2):
        if os.fork() == 0:
            os.read(start[0], 1)
            lock = WriterLock(train_dir)
            try:
                lock.acquire()
            except CheckpointError:
                os.write(result[1], b"-")
            else:
                os.write(result[1], b"+")
            os.read(end[0], 1)  # the winner holds it until both have tried
            os._exit(0)
    os.write(start[1], b"go")
    results = os.read(result[0], 1) + os.read(result[0], 1)
    os.write(end[1], b"go")
    os.wait(), os.wait()
    return "".join(sorted(results.decode()))

print(*(race(Path(sys.argv[1])) for _ in range(50)))
"""


@contextmanager
def process(script: str, train_dir: Path) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-c", script, str(train_dir)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as started:
        assert started.stdout is not None
        assert started.stdout.readline() == "held\n"
        try:
            yield started
        finally:
            started.kill()


def refusal(train_dir: Path) -> str:
    with pytest.raises(CheckpointError) as caught:
        WriterLock(train_dir).acquire()
    return str(caught.value)


def is_free(train_dir: Path) -> bool:
    with WriterLock(train_dir) as lock:
        return lock.is_held and lock.is_enforced


def test_a_second_process_is_told_who_writes_there(tmp_path: Path) -> None:
    with process(HOLDER, tmp_path) as holder:
        assert re.fullmatch(
            rf"{re.escape(str(tmp_path))} is being written by process {holder.pid} on host "
            rf"{re.escape(socket.gethostname())} since \d{{4}}-\d\d-\d\d \d\d:\d\d:\d\d\n"
            "  wait for it, stop it, or give another train_dir",
            refusal(tmp_path),
        )


def test_a_killed_holder_frees_the_lock(tmp_path: Path) -> None:
    with process(HOLDER, tmp_path) as holder:
        holder.kill()
        holder.wait()
        assert is_free(tmp_path)


def test_a_worker_that_outlives_the_killed_holder_does_not_keep_the_lock(tmp_path: Path) -> None:
    with process(HOLDER_WITH_A_WORKER, tmp_path) as holder:
        holder.kill()
        holder.wait()
        assert is_free(tmp_path)  # the worker ends when its standard input does


def test_of_fifty_pairs_of_processes_one_each_wins(tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, "-c", PAIRS, str(tmp_path)], capture_output=True, text=True, check=True)

    assert done.stdout.split() == ["+-"] * 50


def test_a_second_object_of_the_same_process_is_refused(tmp_path: Path) -> None:
    with WriterLock(tmp_path):
        _, _, since = (tmp_path / ".lock").read_text().partition(" since ")
        assert refusal(tmp_path) == (
            f"{tmp_path} is being written by another run of this process since {since}\n"
            "  close that run, or give another train_dir"
        )


def test_the_same_object_may_take_it_twice_and_one_release_frees_it(tmp_path: Path) -> None:
    lock = WriterLock(tmp_path)
    lock.acquire()
    lock.acquire()
    assert lock.is_held
    refusal(tmp_path)
    lock.release()
    assert not lock.is_held
    assert is_free(tmp_path)


def test_a_lock_that_is_forgotten_is_free(tmp_path: Path) -> None:
    lock = WriterLock(tmp_path)
    lock.acquire()
    del lock
    assert is_free(tmp_path)


def test_a_copy_of_a_held_lock_does_not_hold_it(tmp_path: Path) -> None:
    with WriterLock(tmp_path) as lock:
        other = copy.deepcopy(lock)
        assert not other.is_held
        del other
        refusal(tmp_path)


def test_a_holder_that_has_not_told_who_it_is_yet_is_another_process(tmp_path: Path) -> None:
    with WriterLock(tmp_path):
        (tmp_path / ".lock").write_text("")
        assert refusal(tmp_path).startswith(f"{tmp_path} is being written by another process\n  wait for it")


@pytest.mark.parametrize("content", ["process 1 on host a since 2020", "\0" * 9, "x" * 10_000])
def test_what_was_left_in_the_file_does_not_matter(tmp_path: Path, content: str) -> None:
    (tmp_path / ".lock").write_text(content)
    assert is_free(tmp_path)
    assert (tmp_path / ".lock").read_text().startswith(f"process {os.getpid()} on host {socket.gethostname()} since 20")


def test_a_train_dir_that_is_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "digits").touch()
    assert refusal(tmp_path / "digits") == (
        f"train_dir {tmp_path / 'digits'} cannot be written: Not a directory\n"
        "  give a train_dir that is a folder, in which you may write"
    )


@pytest.mark.parametrize("number", [errno.ENOLCK, errno.EOPNOTSUPP])
def test_a_file_system_without_locks_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    def without_locks(*_: object) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(fcntl, "flock", without_locks)
    lock = WriterLock(tmp_path)
    with pytest.warns(RuntimeWarning) as warned:
        lock.acquire()

    assert str(warned[0].message) == (
        f"nothing keeps a second run from writing to {tmp_path}, because its file system has no locks "
        f"({os.strerror(number)})"
    )
    assert lock.is_held
    assert not lock.is_enforced


def test_a_system_without_file_locks_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("train_manager.files.lock.fcntl", None)

    assert refusal(tmp_path) == "a checkpoint cannot be written on a system without file locks"


def test_a_folder_that_is_moved_while_its_lock_is_taken_is_not_taken_for_the_new_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    flock, train_dir = fcntl.flock, tmp_path / "digits"

    def after_a_move(*arguments: Any) -> None:
        monkeypatch.setattr(fcntl, "flock", flock)
        train_dir.rename(tmp_path / "digits-before-1")
        train_dir.mkdir()
        flock(*arguments)

    monkeypatch.setattr(fcntl, "flock", after_a_move)
    train_dir.mkdir()
    with WriterLock(train_dir):
        assert is_free(tmp_path / "digits-before-1")
        refusal(train_dir)


@pytest.mark.parametrize(
    ("name", "text"),
    [("my runs", "my runs"), ("two\nlines", r"'two\nlines'"), ("🦊", "🦊"), ("a\x1b[31m", r"'a\x1b[31m'")],
)
def test_any_name_of_a_folder_is_shown_on_one_line(name: str, text: str) -> None:
    assert quote_path(Path(name)) == text
