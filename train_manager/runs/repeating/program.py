"""A program in a process of its own, whose output is shown and kept."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any, Final, final

BETWEEN_LOOKS: Final = 0.1  # seconds between two pieces of output
LAST_LINES: Final = 12  # lines of output that an error repeats
WIDTH: Final = 200  # characters of each of these lines

Show = Callable[[bytes], object]


@final
@dataclass(frozen=True)
class Ended:
    """The end of a program."""

    code: int  # its exit code, or minus the number of the signal that ended it
    last_lines: tuple[str, ...]  # the end of its output


def run_program(
    command: Sequence[str], *, folder: Path, variables: Mapping[str, str], log: Path, show: Show | None = None
) -> Ended:
    """Run a program to its end.

    >>> from tempfile import mkdtemp
    >>> folder = Path(mkdtemp())
    >>> command = [sys.executable, "-c", "print('hello'); raise SystemExit(3)"]
    >>> run_program(command, folder=folder, variables=os.environ, log=folder / "log")
    Ended(code=3, last_lines=('hello',))

    Its output goes straight into the log, so that it neither waits for its reader nor for processes it leaves behind.
    What it leaves behind is killed; so is the program itself, if this function is left by an error, as by Ctrl-C.

    Args:
        folder: in which it runs.
        variables: its environment, all of it.
        log: the file for its output and errors.
        show: gets the output too, piece by piece.
    """
    with log.open("wb") as output, log.open("rb") as news, _ends_as_by_ctrl_c():
        process = subprocess.Popen(
            command,
            cwd=folder,
            env={**variables, "PYTHONUNBUFFERED": "1"},
            stdin=subprocess.DEVNULL,  # a session in the background cannot read from the terminal
            stdout=output,
            stderr=output,
            start_new_session=True,  # the terminal sends Ctrl-C to this process only, which then kills the session
        )
        try:
            while not _has_ended(process):
                _pass_on(news.read(), show)
            _pass_on(news.read(), show)
        finally:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    return Ended(process.returncode, last_lines(log))


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


def _has_ended(process: subprocess.Popen[bytes]) -> bool:
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(BETWEEN_LOOKS)
    return process.returncode is not None


def _pass_on(news: bytes, show: Show | None) -> None:
    if news and show is not None:
        show(news)


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
