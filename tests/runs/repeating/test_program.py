from __future__ import annotations

import os
import signal
import sys
import threading
from pathlib import Path

import pytest

from tests.support.eventually import eventually
from tests.support.other_processes import is_running
from train_manager.runs.repeating.program import Ended, run_program

WAITS = "import time, pathlib; pathlib.Path('began').touch(); time.sleep(60)"
NAMES_ITSELF = "import os; open('pid', 'w').write(str(os.getpid())); "
DEAF = "import signal; [signal.signal(n, signal.SIG_IGN) for n in (signal.SIGTERM, signal.SIGINT)]; "
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


def test_the_output_is_kept_and_shown(tmp_path: Path) -> None:
    shown: list[bytes] = []

    ended = run(
        "import sys; print('out'); sys.stdout.flush(); print('err', file=sys.stderr)", tmp_path, show=shown.append
    )

    assert ended == Ended(0, ("out", "err"))
    assert b"".join(shown) == (tmp_path / "log").read_bytes() == b"out\nerr\n"


def test_it_runs_in_the_folder_and_with_the_variables(tmp_path: Path) -> None:
    code = "import os; print(os.getcwd()); print(os.environ['COLOUR'], 'HOME' in os.environ)"
    command = [sys.executable, "-S", "-c", code]

    ended = run_program(command, folder=tmp_path, variables={"COLOUR": "red"}, log=tmp_path / "log")

    assert ended.last_lines == (str(tmp_path), "red False")


def test_it_gets_no_input(tmp_path: Path) -> None:
    assert run("import sys; print(repr(sys.stdin.read()))", tmp_path).last_lines == ("''",)


def test_what_it_leaves_running_is_ended(tmp_path: Path) -> None:
    run(PARENT, tmp_path)
    pid = int((tmp_path / "pid").read_text())

    eventually(lambda: not is_running(pid))


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_to_this_process_ends_the_program_first(tmp_path: Path, number: signal.Signals) -> None:
    before = signal.getsignal(number)

    def interrupt() -> None:
        eventually((tmp_path / "began").exists)
        os.kill(os.getpid(), number)

    waiting = threading.Thread(target=interrupt)
    waiting.start()
    with pytest.raises(KeyboardInterrupt if number == signal.SIGINT else SystemExit):
        run(DEAF + NAMES_ITSELF + WAITS, tmp_path)
    waiting.join()

    assert not is_running(int((tmp_path / "pid").read_text()))
    assert signal.getsignal(number) == before


def test_an_error_of_its_reader_ends_the_program_and_comes_out(tmp_path: Path) -> None:
    def fail(output: bytes) -> None:
        raise BrokenPipeError("nobody reads")

    with pytest.raises(BrokenPipeError, match="nobody reads"):
        run(NAMES_ITSELF + "print('out', flush=True); " + WAITS, tmp_path, show=fail)

    assert not is_running(int((tmp_path / "pid").read_text()))
