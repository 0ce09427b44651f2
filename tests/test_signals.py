"""Runs that a signal ends: in this process, at each point of the loop; and in processes of their own, by their exit."""

from __future__ import annotations

import contextlib
import itertools
import os
import random
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import nbformat
import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

from tests.extensions.logging.test_progress_bar import Terminal
from tests.support.fork_server import ForkServer
from tests.support.rotation import share_of
from tests.support.training import At
from train_manager import Extension, TrainManager
from train_manager.signals import stop_on_signals
from train_manager.testing import Recorder, tiny_manager

pytestmark = pytest.mark.skipif(not hasattr(signal, "SIGUSR1"), reason="this platform has no such signals")

EXITS = {"SIGTERM": 143, "SIGINT": -signal.SIGINT, "SIGUSR1": 99}  # a shell shows 130 for -SIGINT
MESSAGE = "{}: ending after this step, with a checkpoint; a second one ends at once\n"
each = pytest.mark.parametrize("name", EXITS)


class Stops(Extension):
    """Takes signals for the time of a run, as an extension that saves does."""

    def __init__(self, **options: Any) -> None:
        self.options = options
        self.raise_if_stopped: Callable[[], None] = lambda: None

    def around_run(self, train_manager: TrainManager) -> Iterator[None]:
        with stop_on_signals(train_manager, **self.options) as self.raise_if_stopped:
            yield

    def pre_train(self) -> None:
        self.raise_if_stopped()


def at_step(number: int, *actions: Callable[[], object]) -> Extension:
    """Do something in one training step, after the forward pass."""

    def hook(step_num: int) -> None:
        for action in actions if step_num == number - 1 else ():
            action()

    return At("post_train_loss_forward", hook)


def send(name: str) -> Callable[[], None]:
    return lambda: signal.raise_signal(getattr(signal, name))


def handlers() -> list[Any]:
    return [signal.getsignal(getattr(signal, name)) for name in EXITS]


DEFAULT = handlers()


@pytest.fixture(autouse=True)
def _handlers_are_restored() -> Iterator[None]:
    yield
    assert handlers() == DEFAULT


# ---- in this process -------------------------------------------------------------------------------------------------


def test_a_signal_ends_the_run_after_this_step_and_the_process_as_the_run_has_closed() -> None:
    tm = tiny_manager(Stops(), at_step(2, send("SIGTERM")), recorder := Recorder(), epochs=9)
    with pytest.raises(SystemExit) as caught:
        tm.train()

    assert (caught.value.code, tm.step_num, tm.stop_reason) == (143, 2, "SIGTERM")
    assert recorder.hooks[-4:] == ["post_train_step_batch", "post_train_step_epoch", "post_train", "post_run"]


def test_ctrl_c_is_a_keyboard_interrupt_as_the_run_has_closed() -> None:
    tm = tiny_manager(Stops(), at_step(2, send("SIGINT")), recorder := Recorder())
    with pytest.raises(KeyboardInterrupt):
        tm.train()

    assert (tm.step_num, recorder.hooks[-1]) == (2, "post_run")


def test_the_code_of_sigusr1_is_an_argument() -> None:
    tm = tiny_manager(Stops(requeue_exit_code=85), at_step(1, send("SIGUSR1")))
    with pytest.raises(SystemExit) as caught:
        tm.train()

    assert caught.value.code == 85


@pytest.mark.parametrize(("saves", "words"), [(True, ", with a checkpoint"), (False, "")])
def test_the_first_signal_says_at_once_what_it_does(saves: bool, words: str, capfd: pytest.CaptureFixture[str]) -> None:
    said: list[str] = []
    tm = tiny_manager(Stops(saves=saves), at_step(1, send("SIGINT"), lambda: said.append(capfd.readouterr().err)))
    with pytest.raises(KeyboardInterrupt):
        tm.train()

    assert said == [f"SIGINT: ending after this step{words}; a second one ends at once\n"]


def test_in_a_phase_the_whole_run_ends() -> None:
    tm = tiny_manager(Stops(), at_step(2, send("SIGTERM")))
    with pytest.raises(SystemExit), tm.run():
        with tm.phase("first"):
            tm.train()
        reached = tm.step_num, tm.stop_reason

    assert reached == (2, "SIGTERM")


def test_where_a_run_is_held_open_the_program_continues_to_its_end() -> None:
    done = []
    tm = tiny_manager(Stops(), at_step(2, send("SIGTERM")), recorder := Recorder())
    with pytest.raises(SystemExit), tm.run():
        done.append(tm.train().steps)

    assert (done, recorder.hooks[-1]) == ([2], "post_run")


def test_the_next_training_call_in_a_run_that_is_held_open_ends_it() -> None:
    tm = tiny_manager(Stops(), at_step(2, send("SIGTERM")))
    with pytest.raises(SystemExit), tm.run():
        tm.train()
        with pytest.warns(UserWarning, match="this run was stopped"):
            tm.train()
        pytest.fail("the second call has returned")

    assert tm.step_num == 2


@each
def test_where_no_training_is_under_way_a_signal_ends_the_run_at_once(name: str) -> None:
    tm = tiny_manager(Stops(), recorder := Recorder())
    with pytest.raises((SystemExit, KeyboardInterrupt)), tm.run():
        tm.train()
        send(name)()
        tm.train_epochs(1)

    assert (tm.step_num, recorder.hooks[-1]) == (3, "post_train")


def test_in_an_evaluation_of_its_own_a_signal_ends_it_at_once() -> None:
    tm = tiny_manager(Stops(), At("pre_eval_step_batch", send("SIGINT")), recorder := Recorder())
    with pytest.raises(KeyboardInterrupt):
        tm.eval()

    assert recorder.stages.count("eval_step_batch") <= 1


def test_a_signal_in_a_post_hook_of_the_run_lets_the_others_run() -> None:
    tm = tiny_manager(Stops(), At("post_run", send("SIGTERM")), recorder := Recorder())
    with pytest.raises(SystemExit):
        tm.train()

    assert (tm.epoch_num, recorder.hooks[-1]) == (1, "post_run")


def test_a_second_signal_ends_the_run_in_the_middle_of_a_step() -> None:
    tm = tiny_manager(Stops(), at_step(2, send("SIGUSR1"), send("SIGTERM")))
    with pytest.raises(SystemExit) as caught:
        tm.train()

    assert (caught.value.code, tm.step_num) == (143, 1)


@pytest.mark.parametrize(("gap", "steps"), [(0.1, 2), (0.3, 1)])
def test_the_same_signal_within_a_fifth_of_a_second_counts_once(gap: float, steps: int) -> None:
    times = itertools.count(step=gap)
    tm = tiny_manager(Stops(clock=lambda: next(times)), at_step(2, send("SIGTERM"), send("SIGTERM")))
    with pytest.raises(SystemExit):
        tm.train()

    assert tm.step_num == steps


def test_an_error_after_a_signal_is_what_comes_out() -> None:
    def fail() -> None:
        send("SIGTERM")()
        raise ValueError("in the same step")

    with pytest.raises(ValueError, match="in the same step"):
        tiny_manager(Stops(), at_step(2, fail)).train()


def batches_that_a_signal_ends() -> Iterator[Any]:
    for _ in range(2):
        yield torch.rand(4, 2), torch.zeros(4).long()
    send("SIGTERM")()
    raise RuntimeError("the process that loads the data has ended")


def test_where_the_signal_has_also_ended_the_data_the_run_ends_without_it() -> None:
    tm = tiny_manager(Stops(), recorder := Recorder(), train_data=batches_that_a_signal_ends())
    with pytest.raises(SystemExit) as caught:
        tm.train()

    assert (caught.value.code, tm.step_num, recorder.hooks[-1]) == (143, 2, "post_run")


def test_an_error_of_a_worker_that_the_signal_has_ended_does_not_hide_the_exit_code() -> None:
    def fail() -> None:
        send("SIGUSR1")()
        raise RuntimeError("DataLoader worker (pid 25) is killed by signal: Terminated. ")

    with pytest.raises(SystemExit) as caught:
        tiny_manager(Stops(), at_step(2, fail)).train()

    assert caught.value.code == 99


def test_after_a_signal_torch_raises_no_error_for_a_worker_that_ends() -> None:
    def of_torch(number: int, frame: FrameType | None) -> None: ...

    of_torch.__module__ = "torch.utils.data._utils.signal_handling"
    before = signal.signal(signal.SIGCHLD, of_torch)
    seen: list[Any] = []
    look = at_step(2, send("SIGTERM"), lambda: seen.append(signal.getsignal(signal.SIGCHLD)))
    with pytest.raises(SystemExit):
        tiny_manager(Stops(), look).train()

    assert (seen, signal.signal(signal.SIGCHLD, before)) == ([signal.SIG_DFL], of_torch)


def test_a_manager_that_a_signal_has_stopped_can_train_again() -> None:
    tm = tiny_manager(Stops(), at_step(2, send("SIGINT")))
    with pytest.raises(KeyboardInterrupt):
        tm.train()
    tm.train()

    assert (tm.epoch_num, tm.stop_reason) == (1, None)


def test_a_run_inside_a_hook_ends_and_then_the_one_around_it() -> None:
    inner = tiny_manager(Stops(), at_step(2, send("SIGTERM")), epochs=9)
    outer = tiny_manager(Stops(), at_step(2, inner.train))
    with pytest.raises(SystemExit):
        outer.train()

    assert (inner.step_num, inner.stop_reason) == (outer.step_num, outer.stop_reason) == (2, "SIGTERM")


class SignalAt:
    """Sends one SIGTERM at a point of this library: a call, or a line, while there is a handler for it."""

    def __init__(self, point: int) -> None:
        self.left = point

    def __call__(self, frame: FrameType, event: str, argument: Any) -> SignalAt | None:
        if "/train_manager/" not in frame.f_code.co_filename:
            return None
        if signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL:
            self.left -= 1
            if self.left == 0:
                signal.raise_signal(signal.SIGTERM)
        return self


def points_of_a_run() -> int:
    counts = SignalAt(0)
    sys.settrace(counts)
    tiny_manager(Stops()).train()
    sys.settrace(None)
    return -counts.left


def test_at_every_point_of_a_run_a_signal_ends_it_and_leaves_nothing_behind() -> None:
    points = random.Random(0).sample(range(1, points_of_a_run()), share_of(40))
    graceful = 0
    for point in points:
        tm = tiny_manager(Stops(), recorder := Recorder())
        before = sys.gettrace()
        with pytest.raises(SystemExit) as caught:
            sys.settrace(SignalAt(point))
            try:
                tm.train()
            finally:
                sys.settrace(before)
        assert (caught.value.code, dict(tm.fixtures), handlers()) == (143, {}, DEFAULT), f"at point {point}"
        if tm.stop_reason == "SIGTERM":
            graceful += 1
            assert recorder.hooks[-1] == "post_run", f"at point {point}"
    assert graceful > len(points) / 2


# ---- what is left alone ----------------------------------------------------------------------------------------------


def test_in_another_thread_nothing_is_installed() -> None:
    seen: list[Any] = []
    tm = tiny_manager(Stops(), at_step(2, lambda: seen.append(handlers())))
    thread = threading.Thread(target=tm.train)
    thread.start()
    thread.join()

    assert (seen, tm.step_num) == ([DEFAULT], 3)


def test_after_an_error_the_handlers_are_restored() -> None:
    def fail() -> None:
        assert handlers() != DEFAULT
        raise ValueError("on purpose")

    with pytest.raises(ValueError, match="on purpose"):
        tiny_manager(Stops(), at_step(2, fail)).train()

    assert handlers() == DEFAULT


@pytest.fixture
def _own_handlers() -> Iterator[None]:
    yield
    for name, handler in zip(EXITS, DEFAULT, strict=True):
        signal.signal(getattr(signal, name), handler)


@pytest.mark.usefixtures("_own_handlers")
def test_a_handler_of_the_programs_own_is_left_alone_and_said() -> None:
    came: list[int] = []
    signal.signal(signal.SIGUSR1, lambda number, frame: came.append(number))
    tm = tiny_manager(Stops(), at_step(2, send("SIGUSR1")))
    with pytest.warns(UserWarning, match="SIGUSR1") as warned:
        tm.train()
    signal.signal(signal.SIGUSR1, signal.SIG_DFL)

    assert (came, tm.step_num) == ([signal.SIGUSR1], 3)
    assert [str(warning.message) for warning in warned] == [
        "SIGUSR1 has a handler of the program's own, which is left alone: SIGUSR1 ends no run with a checkpoint "
        "(call tm.stop_from_outside(reason) in that handler)"
    ]
    assert warned[0].filename == __file__


@pytest.mark.usefixtures("_own_handlers")
def test_a_signal_that_is_ignored_stays_ignored() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    tm = tiny_manager(Stops(), at_step(2, send("SIGINT")))
    tm.train()
    signal.signal(signal.SIGINT, signal.default_int_handler)

    assert tm.step_num == 3


def test_a_handler_that_is_set_in_the_run_stays() -> None:
    def mine(number: int, frame: FrameType | None) -> None: ...

    tiny_manager(Stops(), at_step(2, lambda: signal.signal(signal.SIGTERM, mine))).train()

    assert signal.getsignal(signal.SIGTERM) is mine
    signal.signal(signal.SIGTERM, signal.SIG_DFL)


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
    for moment in random.Random(name).sample(range(200), 3):
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


@pytest.mark.parametrize("first", EXITS)
@pytest.mark.parametrize("second", ["SIGTERM", "SIGINT"])
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
