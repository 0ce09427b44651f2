from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.eventually import eventually
from tests.other_processes import is_running
from train_manager.runs.repeating.watched_program import Ended, run_program

WAITS = "import time, pathlib; pathlib.Path('began').touch(); time.sleep(60)"
DEAF = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); " + WAITS
PARENT = f"""
import subprocess, sys, pathlib
child = subprocess.Popen([sys.executable, "-S", "-c", {WAITS!r}])
pathlib.Path("pid").write_text(str(child.pid))
while not pathlib.Path("began").exists():
    pass
"""


def run(code: str, folder: Path, **options: object) -> Ended:
    command = [sys.executable, "-S", "-c", code]
    return run_program(command, folder=folder, variables=os.environ, log=folder / "log", **options)  # type: ignore[arg-type]


def began(folder: Path) -> Callable[[], bool]:
    return (folder / "began").exists


def test_the_output_is_kept_and_shown(tmp_path: Path) -> None:
    shown: list[bytes] = []

    ended = run(
        "import sys; print('out'); sys.stdout.flush(); print('err', file=sys.stderr)", tmp_path, show=shown.append
    )

    assert ended == Ended(0, False, ("out", "err"))
    assert b"".join(shown) == (tmp_path / "log").read_bytes() == b"out\nerr\n"


def test_it_runs_in_the_folder_and_with_the_variables(tmp_path: Path) -> None:
    code = "import os; print(os.getcwd()); print(os.environ['COLOUR'], 'HOME' in os.environ)"
    command = [sys.executable, "-S", "-c", code]

    ended = run_program(command, folder=tmp_path, variables={"COLOUR": "red"}, log=tmp_path / "log")

    assert ended.last_lines == (str(tmp_path), "red False")


def test_it_gets_no_input(tmp_path: Path) -> None:
    assert run("import sys; print(repr(sys.stdin.read()))", tmp_path).last_lines == ("''",)


def test_it_is_asked_to_end_when_enough_is_done(tmp_path: Path) -> None:
    ended = run(WAITS, tmp_path, is_enough=began(tmp_path))

    assert ended.stopped
    assert ended.code == -signal.SIGTERM


def test_a_program_that_does_not_end_when_asked_is_killed(tmp_path: Path) -> None:
    ended = run(DEAF, tmp_path, is_enough=began(tmp_path), patience=0.0)

    assert ended.code == -signal.SIGKILL


def test_what_it_leaves_running_is_ended(tmp_path: Path) -> None:
    run(PARENT, tmp_path)
    pid = int((tmp_path / "pid").read_text())

    eventually(lambda: not is_running(pid))


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_to_this_process_ends_the_program_first(tmp_path: Path, number: signal.Signals) -> None:
    code = "import os; open('pid', 'w').write(str(os.getpid())); " + WAITS
    before = signal.getsignal(number)

    def interrupt() -> bool:
        if (tmp_path / "began").exists():
            os.kill(os.getpid(), number)
        return False

    with pytest.raises(KeyboardInterrupt if number == signal.SIGINT else SystemExit):
        run(code, tmp_path, is_enough=interrupt)

    assert not is_running(int((tmp_path / "pid").read_text()))
    assert signal.getsignal(number) == before


def test_an_error_of_the_watcher_ends_the_program_and_comes_out(tmp_path: Path) -> None:
    def fail() -> bool:
        if (tmp_path / "pid").exists():
            raise ValueError("no such store")
        return False

    with pytest.raises(ValueError, match="no such store"):
        run("import os; open('pid', 'w').write(str(os.getpid())); " + WAITS, tmp_path, is_enough=fail)

    pid = (tmp_path / "pid").read_text()
    assert not pid or not is_running(int(pid))


def test_a_program_that_is_not_there_is_told(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="no-such-python"):
        run_program(["/no-such-python"], folder=tmp_path, variables={}, log=tmp_path / "log")
