"""A program in a process of its own, whose output is shown and kept, and which ends when enough is done."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any, Final, final

LOOKS: Final = 0.05  # seconds between two looks at the program
PATIENCE: Final = 60.0  # seconds until a program that was asked to end is killed: it may write a checkpoint
LAST_LINES: Final = 12  # lines of output that an error repeats
WIDTH: Final = 200  # characters of each of these lines

Show = Callable[[bytes], object]


@final
@dataclass(frozen=True)
class Ended:
    """The end of a program."""

    code: int  # its exit code, or minus the number of the signal that ended it
    stopped: bool  # whether it was asked to end because enough steps were done
    last_lines: tuple[str, ...]  # the end of its output


def run_program(
    command: Sequence[str],
    *,
    folder: Path,
    variables: Mapping[str, str],
    log: Path,
    show: Show | None = None,
    is_enough: Callable[[], bool] = lambda: False,
    patience: float = PATIENCE,
) -> Ended:
    """Run a program to its end.

    >>> from tempfile import mkdtemp
    >>> folder = Path(mkdtemp())
    >>> command = [sys.executable, "-c", "print('hello'); raise SystemExit(3)"]
    >>> run_program(command, folder=folder, variables=os.environ, log=folder / "log")
    Ended(code=3, stopped=False, last_lines=('hello',))

    Its output goes straight into the log, so that it neither waits for its reader nor for processes it leaves behind.
    If this function is left by an error, as by Ctrl-C, the program and all that it started is ended first.

    Args:
        folder: in which it runs.
        variables: its environment, all of it.
        log: the file for its output and errors.
        show: gets the output too, piece by piece.
        is_enough: called about twenty times a second; once it returns True, the program gets a SIGTERM.
        patience: seconds from the SIGTERM until the program is killed.
    """
    with log.open("wb") as output, log.open("rb") as new_output, _ends_as_by_ctrl_c():
        process = subprocess.Popen(
            command,
            cwd=folder,
            env={**variables, "PYTHONUNBUFFERED": "1"},
            stdin=subprocess.DEVNULL,  # a group in the background is stopped as soon as it reads from the terminal
            stdout=output,
            stderr=output,
            process_group=0,  # the terminal sends Ctrl-C to this process only, which then ends the program in order
        )
        try:
            stopped = _watch(process, lambda: _pass_on(new_output.read(), show), is_enough, patience)
        finally:
            _end_group(process)
    return Ended(process.returncode, stopped, last_lines(log))


def last_lines(log: Path, count: int = LAST_LINES) -> tuple[str, ...]:
    """Return the last lines of a log; of a progress bar, its last state.

    >>> from tempfile import mkdtemp
    >>> log = Path(mkdtemp(), "log")
    >>> _ = log.write_bytes(b"begin" + b"1%\\r50%\\r100%" + bytes([10]) + b"end")
    >>> last_lines(log)
    ('100%', 'end')
    """
    with log.open("rb") as file:
        # A log may have gigabytes: its last 100 kB are enough.
        file.seek(max(0, log.stat().st_size - 100_000))
        text = file.read().decode(errors="replace").rstrip()
    # A progress bar rewrites its line after each carriage return.
    lines = [line.rstrip("\r").rpartition("\r")[2][:WIDTH] for line in text.split("\n")]
    return tuple(lines[-count:]) if text else ()


def _watch(
    process: subprocess.Popen[bytes],
    show_news: Callable[[], None],
    is_enough: Callable[[], bool],
    patience: float,
) -> bool:
    """Wait for the end of the program, and return whether it was asked to end."""
    asked: float | None = None
    while not _has_ended(process):
        show_news()
        # SIGTERM lets the program end in order, with its last metrics written.
        if asked is None and is_enough():
            process.terminate()
            asked = time.monotonic()
        elif asked is not None and time.monotonic() > asked + patience:
            process.kill()
    show_news()
    return asked is not None


def _has_ended(process: subprocess.Popen[bytes]) -> bool:
    try:
        process.wait(LOOKS)
    except subprocess.TimeoutExpired:
        return False
    return True


def _pass_on(news: bytes, show: Show | None) -> None:
    if news and show is not None:
        show(news)


def _end_group(process: subprocess.Popen[bytes]) -> None:
    """End a program that still runs, by SIGTERM and then by SIGKILL, with the processes of its group."""
    try:
        if process.poll() is None:
            process.terminate()
            process.wait(PATIENCE / 6)
    except (subprocess.TimeoutExpired, KeyboardInterrupt):  # a second Ctrl-C
        process.kill()
        process.wait()
    finally:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


@contextlib.contextmanager
def _ends_as_by_ctrl_c() -> Iterator[None]:
    """Raise ``SystemExit`` on a SIGTERM and on a closed terminal, so that the program is ended too."""

    def leave(number: int, _: FrameType | None) -> None:
        sys.exit(128 + number)

    before: dict[int, Any] = {}
    with contextlib.suppress(ValueError):  # Python sets handlers of signals in the main thread only
        for number in (signal.SIGTERM, signal.SIGHUP):
            if signal.getsignal(number) == signal.SIG_DFL:
                before[number] = signal.signal(number, leave)
    try:
        yield
    finally:
        for taken, handler in before.items():
            signal.signal(taken, handler)
