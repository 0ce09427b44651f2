"""Signals that reach processes of their own: trainings, their workers and forks, and a terminal."""

from __future__ import annotations

import contextlib
import itertools
import os
import random
import signal
import sys
import time
from pathlib import Path
from typing import Any

import nbformat
import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

from tests.extensions.logging.test_progress_bar import Terminal
from tests.support.fork_server import ForkServer
from tests.support.rotation import in_turn, share_of
from tests.support.signals import EXITS, MESSAGE, Stops, at_step, each, send
from train_manager import Extension
from train_manager.testing import tiny_manager

pytestmark = pytest.mark.skipif(not hasattr(signal, "SIGUSR1"), reason="this platform has no such signals")


# ---- in processes of their own ---------------------------------------------------------------------------------------


class Tells(Extension):
    """Prints what a test waits for."""

    def pre_train_step_batch(self, step_num: int) -> None:
        print("begins", step_num)

    def post_train_step_batch(self, step_num: int) -> None:
        print("ends", step_num)

    def post_run(self) -> None:
        print("closed")


def trains(*extensions: Extension, **options: Any) -> None:
    options = {"eval_data": None, "epochs": 10**9, **options}
    tiny_manager(*extensions or [Stops()], Tells(), **options).train()


def steps_of(output: str) -> tuple[int, int]:
    """Return how many steps have begun, and how many have ended."""
    return output.count("begins"), output.count("ends")


@each
def test_at_random_moments_a_signal_lets_the_step_and_the_run_end(name: str, fork_server: ForkServer) -> None:
    for moment in random.Random(name).sample(range(200), share_of(3)):
        child = fork_server.start(trains)
        child.wait_for(f"{random.Random(moment).choice(['begins', 'ends'])} {moment}")
        child.signal(getattr(signal, name))
        assert child.wait() == EXITS[name], child.errors
        begun, ended = steps_of(child.output)
        assert (begun == ended, child.output.endswith("closed\n")) == (True, True)
        assert child.errors.startswith(MESSAGE.format(name))


def hangs() -> None:
    print("hangs")
    while True:  # a signal that comes between two Python instructions does not interrupt a sleep that is about to begin
        time.sleep(0.01)


def hangs_in_step_3() -> None:
    times = itertools.count()
    trains(Stops(clock=lambda: next(times)), at_step(3, hangs))


@pytest.mark.parametrize(("first", "second"), in_turn(EXITS, ["SIGTERM", "SIGINT"]))
def test_while_a_hook_hangs_a_second_signal_ends_the_process(first: str, second: str, fork_server: ForkServer) -> None:
    child = fork_server.start(hangs_in_step_3)
    child.wait_for("hangs")
    child.signal(getattr(signal, first))
    while MESSAGE.format(first) not in child.errors:
        os.sched_yield()
    child.signal(getattr(signal, second))

    assert child.wait() == EXITS[second], child.errors


def forks_in_step_2(name: str) -> None:
    def fork() -> None:
        pid = os.fork()
        if pid == 0:
            send(name)()
            os._exit(7)
        print("code", os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))

    trains(Stops(), at_step(2, fork), epochs=1)


@pytest.mark.parametrize(("name", "code"), [("SIGTERM", -15), ("SIGUSR1", 7), ("SIGINT", 7)])
def test_a_process_that_is_forked_in_a_run_ends_by_itself_alone(name: str, code: int, fork_server: ForkServer) -> None:
    child = fork_server.start(forks_in_step_2, name)

    assert (child.wait(), steps_of(child.output), child.errors) == (0, (3, 3), "")
    assert f"code {code}\n" in child.output


def trains_with_workers() -> None:
    os.setpgid(0, 0)
    data = TensorDataset(torch.rand(4096, 2), torch.zeros(4096).long())
    trains(train_data=DataLoader(data, batch_size=4, num_workers=2))


@each
def test_a_signal_to_all_processes_of_a_job_also_reaches_the_workers_of_a_loader(
    name: str, fork_server: ForkServer
) -> None:
    child = fork_server.start(trains_with_workers)
    child.wait_for("ends 20")
    os.killpg(child.pid, getattr(signal, name))

    assert child.wait() == EXITS[name], child.errors
    begun, ended = steps_of(child.output)
    assert (begun == ended, child.output.endswith("closed\n")) == (True, True)


class WithLock(DataLoader[Any]):
    """Keeps the lock in which a worker asks whether the pass is over."""

    def __iter__(self) -> Any:
        batches: Any = super().__iter__()
        self.lock = batches._workers_done_event._cond
        return batches


def trains_until_a_worker_dies() -> None:
    loader = WithLock(TensorDataset(torch.rand(4096, 2), torch.zeros(4096).long()), batch_size=4, num_workers=1)
    worker_takes_lock = at_step(3, lambda: loader.lock.acquire(), send("SIGTERM"))  # nothing releases it any more
    trains(Stops(), worker_takes_lock, train_data=loader)


def test_a_worker_that_a_signal_killed_while_it_held_a_lock_does_not_keep_the_run_from_its_end(
    fork_server: ForkServer,
) -> None:
    child = fork_server.start(trains_until_a_worker_dies)

    assert child.wait() == EXITS["SIGTERM"], child.errors
    assert child.output.endswith("closed\n")


def is_tested(file: str) -> None:
    sys.exit(pytest.main([file, "-p", "no:cacheprovider", "-q"]))


TEST = """
from tests.test_signals import Stops, at_step, send
from train_manager.testing import tiny_manager

def test_that_is_interrupted():
    tiny_manager(Stops(), at_step(2, send("SIGINT"))).train()

def test_that_is_not_reached():
    print("reached")
"""


def test_under_pytest_ctrl_c_interrupts_the_tests(fork_server: ForkServer, tmp_path: Path) -> None:
    file = tmp_path / "test_it.py"
    file.write_text(TEST)
    child = fork_server.start(is_tested, str(file))

    assert child.wait() == pytest.ExitCode.INTERRUPTED, child.output
    assert "KeyboardInterrupt" in child.output
    assert "reached" not in child.output


IN_A_TERMINAL = """
import sys
import time
from train_manager import Extension
from train_manager.extensions import Checkpoints, ProgressBar
from train_manager.testing import tiny_manager

class WaitsForCtrlC(Extension):
    def post_train_step_batch(self, step_num, train_manager):
        if step_num == 4:
            print("press it", flush=True)
            while train_manager._asked_from_outside is None:
                time.sleep(0.01)

bars = ProgressBar(interval=0)
tm = tiny_manager(Checkpoints(), bars, WaitsForCtrlC(), epochs=9, train_dir=sys.argv[1], eval_data=None)
tm.train()
"""


def screen_after_ctrl_c(program: Path, train_dir: Path) -> tuple[list[str], int]:
    """Press Ctrl-C in a terminal that runs a program, and return the lines on its screen, and how the process ended."""
    import fcntl
    import pty
    import struct
    import termios

    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "OMP_NUM_THREADS": "1"}
    process, terminal = pty.fork()
    if process == 0:
        fcntl.ioctl(0, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
        os.execve(sys.executable, [sys.executable, str(program), str(train_dir)], environment)
    written, was_pressed = b"", False
    with contextlib.suppress(OSError):  # Linux says so where the process has closed its terminal
        while more := os.read(terminal, 4096):
            written += more
            if b"press it" in written and not was_pressed:
                was_pressed = os.write(terminal, b"\x03") == 1
    os.close(terminal)
    terminal_of_test = Terminal(written.decode())
    return terminal_of_test.screen(), os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])


@pytest.mark.slow
@pytest.mark.whole  # test_progress_bar shows the screen, and test_signals what is said
def test_in_a_terminal_ctrl_c_leaves_the_line_of_the_user_and_one_line_of_what_is_saved(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(IN_A_TERMINAL)

    screen, exit_code = screen_after_ctrl_c(program, tmp_path / "run")

    assert exit_code == EXITS["SIGINT"], screen
    message = screen.index(MESSAGE.format("SIGINT").rstrip())  # the whole line: nothing of a bar stands behind it
    traceback = screen.index("Traceback (most recent call last):")
    assert screen[message + 1 : traceback] == []
    assert screen[traceback + 2 :] == [
        "    tm.train()",
        "KeyboardInterrupt",
        "stopped at step 4; with Checkpoints(resume=True) the program goes on from this step, which is saved",
    ]


CELLS = [  # a run that is held open lets Ctrl-C end other cells at once
    "import signal\nfrom tests.test_signals import Stops, at_step, send, handlers\n"
    "from train_manager.testing import tiny_manager\n"
    "tm = tiny_manager(Stops(), at_step(2, send('SIGINT')))\nbefore = handlers()",
    "tm.train()",
    "print(tm.step_num, tm.stop_reason, handlers() == before)",
    "tm.open()",
    "print(handlers() == before)\nsignal.raise_signal(signal.SIGINT)",
]


@pytest.mark.slow
@pytest.mark.whole
def test_in_a_notebook_ctrl_c_interrupts_the_cell_after_the_step(tmp_path: Path) -> None:
    from tests.test_notebooks import executed

    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in CELLS])  # type: ignore[no-untyped-call]
    cells = executed(notebook, tmp_path, allow_errors=True).cells
    errors = [[output.ename for output in cell.outputs if output.output_type == "error"] for cell in cells]
    texts = ["".join(o.text for o in cell.outputs if o.get("name") == "stdout") for cell in cells]

    assert errors == [[], ["KeyboardInterrupt"], [], [], ["KeyboardInterrupt"]]
    assert texts == ["", "", "2 SIGINT True\n", "", "True\n"]
