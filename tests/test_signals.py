"""Runs that a signal ends: in this process, at each point of the loop; and in processes of their own, by their exit."""

from __future__ import annotations

import itertools
import random
import signal
import sys
import threading
from collections.abc import Iterator
from types import FrameType
from typing import Any

import pytest
import torch

from tests.support import signals
from tests.support.rotation import share_of
from tests.support.signals import EXITS, Stops, at_step, each, send
from tests.support.training import At
from train_manager.testing import Recorder, tiny_manager

pytestmark = pytest.mark.skipif(not hasattr(signal, "SIGUSR1"), reason="this platform has no such signals")


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
    points = random.Random(0).sample(range(1, points_of_a_run()), share_of(share_of(40)))
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
    assert warned[0].filename == signals.__file__  # of the extension that takes the signals


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
