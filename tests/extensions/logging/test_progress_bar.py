from __future__ import annotations

import gc
import io
import re
import sys
import weakref
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, redirect_stderr, redirect_stdout
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.support.host_reads import HostReads
from train_manager import Extension, SkipBatch, TrainManager
from train_manager.core.fixtures import Fixtures
from train_manager.errors import CheckError
from train_manager.extensions import Metrics, ProgressBar
from train_manager.reporting.pace import Pace
from train_manager.testing import Recorder, tiny_manager


class Terminal(io.StringIO):
    """A file that claims to be a terminal, and knows the text on its screen."""

    def isatty(self) -> bool:
        return True

    def screen(self) -> list[str]:
        """Return the text on the screen, without empty lines."""
        lines = [""]
        row = column = 0
        for part in re.split("(\x1b\\[[AJ])", self.getvalue()):
            if part == "\x1b[A":
                row -= 1
                continue
            if part == "\x1b[J":
                lines[row:] = [lines[row][:column]]
                continue
            for char in part:
                if char == "\n":
                    row, column = row + 1, 0
                    lines += [""] * (row + 1 - len(lines))
                elif char == "\r":
                    column = 0
                else:
                    lines[row] = lines[row][:column].ljust(column) + char + lines[row][column + 1 :]
                    column += 1
        return [line.rstrip() for line in lines if line.strip()]

    def drawn(self, start: str) -> list[str]:
        """Return every drawing of a bar, oldest first."""
        text = self.getvalue().replace("\x1b[A", "\r").replace("\n", "\r")
        return [line.rstrip() for line in text.split("\r") if line.startswith(start)]


class Unsized:
    """Give the data of another object, without its length."""

    def __init__(self, data: Any) -> None:
        self.data = data

    def __iter__(self) -> Iterator[Any]:
        return iter(self.data)


class FailAt(Extension):
    def __init__(self, step: int, error: BaseException) -> None:
        self.step = step
        self.error = error

    def post_train_step_batch(self, step_num: int) -> None:
        if step_num == self.step:
            raise self.error


class SkipAllButTheLast(Extension):
    def post_train_model_forward(self, last_batch: bool) -> None:
        if not last_batch:
            raise SkipBatch


def always_drawn(terminal: Terminal, *show: str) -> ProgressBar:
    return ProgressBar(show, interval=0, file=terminal)


@contextmanager
def in_terminal() -> Iterator[Terminal]:
    """Let both streams go to a terminal."""
    terminal = Terminal()
    with redirect_stdout(terminal), redirect_stderr(terminal):
        yield terminal


def screen_of(*extensions: Extension, **options: Any) -> list[str]:
    with in_terminal() as terminal:
        tiny_manager(ProgressBar(interval=0), *extensions, eval_data=None, **options).train()
        return terminal.screen()


def test_after_an_early_stop_the_bar_of_epochs_stays_without_a_time_left() -> None:
    def stop(train_manager: TrainManager, epoch_num: int) -> None:
        if epoch_num == 2:
            train_manager.stop("the loss is low")

    *_, bar = screen_of(Extension.of(post_train_step_epoch=stop), epochs=4)

    assert bar.startswith("epochs:  50%|")
    assert re.search(r"\| 2/4 \[[\d:]+, ", bar)


# ---- what is printed meanwhile -----------------------------------------------------------------------------------


def test_what_a_hook_prints_stands_above_the_bars() -> None:
    def tells(step_num: int) -> None:
        print("step", step_num)

    *lines, bar = screen_of(Extension.of(post_train_backward=tells))  # only that of the epochs stays

    assert lines == ["step 0", "step 1", "step 2"]
    assert bar.startswith("epochs: 100%")


def test_a_warning_stands_above_the_bars() -> None:
    *lines, _ = screen_of(Extension.of(post_train_backward=lambda: sys.stderr.write("a warning\n")))

    assert lines == ["a warning"] * 3


def test_a_line_that_is_printed_in_parts_stays_one() -> None:
    parts = iter(["a", " line", " in parts\nand the ", "next"])
    lines = screen_of(
        Extension.of(post_train_backward=lambda: print(next(parts), end="", flush=True)), epochs=2, steps_per_epoch=2
    )

    assert lines[0] == "a line in parts"
    assert lines[-1].endswith("and the next")


@pytest.mark.parametrize("error", [None, ValueError("on purpose"), KeyboardInterrupt()])
def test_after_a_training_the_streams_are_those_of_before(error: BaseException | None) -> None:
    fails = [] if error is None else [FailAt(2, error)]
    with in_terminal() as terminal:
        with nullcontext() if error is None else pytest.raises(type(error)):
            tiny_manager(ProgressBar(), *fails).train()

        assert (sys.stdout, sys.stderr) == (terminal, terminal)


def test_a_stream_that_a_hook_has_replaced_stays_replaced() -> None:
    another = io.StringIO()
    replace = Extension.of(post_train_backward=lambda: setattr(sys, "stdout", another))
    with in_terminal():
        tiny_manager(ProgressBar(), replace).train()

        assert sys.stdout is another


def test_only_a_stream_that_goes_to_a_terminal_is_looked_after() -> None:
    file, seen = io.StringIO(), []
    look = Extension.of(post_train_backward=lambda: seen.append(sys.stdout))
    with in_terminal(), redirect_stdout(file):
        tiny_manager(ProgressBar(), look, eval_data=None).train()

    assert seen == [file] * 3


# ---- what is drawn -----------------------------------------------------------------------------------------------


def test_every_batch_of_an_epoch_is_counted() -> None:
    terminal = Terminal()
    tiny_manager(always_drawn(terminal)).train()
    assert [line.split("[")[0].split("|")[-1].strip() for line in terminal.drawn("epoch 1")] == [
        "0/3",
        "1/3",
        "2/3",
        "3/3",
    ]


def test_every_evaluation_set_has_a_bar_with_its_name() -> None:
    terminal = Terminal()
    batches = [(torch.rand(4, 2), torch.zeros(4, dtype=torch.long))] * 2
    tiny_manager(always_drawn(terminal), eval_data={"near": batches, "far": batches}).train()
    assert " 2/2 " in terminal.drawn("eval near")[-1]
    assert " 2/2 " in terminal.drawn("eval far")[-1]


def test_an_evaluation_alone_has_a_bar_too() -> None:
    terminal = Terminal()
    tiny_manager(always_drawn(terminal)).eval()
    assert len(terminal.drawn("eval valid")) == 3
    assert terminal.screen() == []


def test_a_training_of_some_steps_has_no_bar_of_epochs() -> None:
    terminal = Terminal()
    tm = tiny_manager(always_drawn(terminal))
    tm.train_steps(2)
    assert terminal.drawn("epoch 1")
    assert (terminal.drawn("epochs"), terminal.screen()) == ([], [])


def test_no_bar_stays_of_a_call_that_has_nothing_to_do() -> None:
    tm = tiny_manager()
    tm.train()
    terminal = Terminal()
    tm.add_extension(always_drawn(terminal))
    with pytest.warns(UserWarning, match="nothing to do"):
        tm.train()
    assert terminal.screen() == []


def test_the_bars_are_nested_while_they_run() -> None:
    terminal = Terminal()

    class Look(Extension):
        def post_train_step_batch(self) -> None:
            self.screen = terminal.screen()

    look = Look()
    tiny_manager(always_drawn(terminal), look).train()
    assert [line.split(":")[0] for line in look.screen] == ["epochs", "epoch 1"]


def test_the_total_is_unknown_if_the_data_has_no_length() -> None:
    terminal = Terminal()
    tm = tiny_manager(always_drawn(terminal))
    tm.train_data = Unsized(tm.train_data)
    tm.train()
    assert terminal.drawn("epoch 1")[-1].startswith("epoch 1: 3batch [")


def test_the_total_is_steps_per_epoch_if_that_is_given() -> None:
    terminal = Terminal()
    tiny_manager(always_drawn(terminal), steps_per_epoch=5).train()
    assert " 5/5 " in terminal.drawn("epoch 1")[-1]


def test_a_skipped_batch_moves_the_bar_on() -> None:
    terminal = Terminal()
    tm = tiny_manager(always_drawn(terminal), SkipAllButTheLast())
    tm.train()
    assert tm.step_num == 1
    assert " 3/3 " in terminal.drawn("epoch 1")[-1]


@pytest.mark.parametrize(("done", "more", "shown"), [(1, 2, " 3/3 "), (0, 2, " 2/2 "), (0, 1, " 1/1 ")])
def test_the_total_of_more_epochs_than_planned_is_that_of_the_training_call(done: int, more: int, shown: str) -> None:
    tm = tiny_manager(epochs=1)
    tm.train_epochs(done)
    terminal = Terminal()
    tm.add_extension(always_drawn(terminal))
    tm.train_epochs(more)
    assert shown in terminal.screen()[0]


def test_the_total_of_fewer_epochs_than_planned_is_that_of_the_plan() -> None:
    terminal = Terminal()
    tiny_manager(always_drawn(terminal), epochs=3).train_epochs(1)
    assert " 1/3 " in terminal.screen()[0]


def test_a_second_training_continues_the_bar() -> None:
    tm = tiny_manager(epochs=3)
    tm.train_epochs(1)
    terminal = Terminal()
    tm.add_extension(always_drawn(terminal))
    tm.train()
    assert " 1/3 " in terminal.drawn("epochs")[0]
    assert terminal.drawn("epoch 1") == []


# ---- fixtures beside the bar -----------------------------------------------------------------------------------------


def test_a_fixture_that_is_never_alive_is_refused_before_the_first_step_with_the_nearest_name() -> None:
    recorder = Recorder()
    with pytest.raises(CheckError, match=r"ProgressBar.post_train_step_batch wants 'lss'") as caught:
        tiny_manager(ProgressBar(show=["lss"]), recorder).train()
    assert caught.value.mistakes[0].nearest[0] == "loss"
    assert recorder.stages == []


def narrow(columns: int, *show: str) -> str:
    """Return the last drawing of a bar in a terminal of so many columns."""
    terminal = Terminal()
    bar = always_drawn(terminal, *show)
    metrics = Metrics(accuracy=lambda prediction, targets: prediction.argmax(dim=1) == targets)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("tqdm.std._screen_shape_wrapper", lambda: lambda file: (columns, 40))
        tiny_manager(bar, metrics).train()
    return terminal.drawn("epoch 1")[-1]


def test_a_name_that_is_also_in_a_dict_is_shown_once() -> None:
    assert re.findall(r"(\w+)=", narrow(200, "loss", "metrics")) == ["batch_loss", "moving_loss", "accuracy"]


@pytest.mark.parametrize("columns", [40, 80, 120])
def test_the_bar_keeps_its_width_in_a_narrow_terminal_and_the_echo_of_ctrl_c_fits_beside_it(columns: int) -> None:
    line = narrow(columns, "loss", "metrics")
    assert len(line.split("|")[1]) >= 9
    assert len(line + "^C") <= columns


class EverySecond(Extension):
    """Provide a fixture in every second step."""

    def post_train_loss_forward(self, step_num: int, fixtures: Fixtures) -> None:
        if step_num % 2 == 0:
            fixtures.define("second", step_num, stage="train_step_batch")


def test_a_fixture_that_is_absent_in_some_steps_keeps_its_last_text() -> None:
    terminal = Terminal()
    tiny_manager(always_drawn(terminal, "second", "step_num"), EverySecond()).train()
    texts = [re.findall(r"second=\d|step_num=\d", line) for line in terminal.drawn("epoch 1")[1:]]
    assert texts == [["second=0", "step_num=1"], ["second=0", "step_num=2"], ["second=2", "step_num=3"]]


def test_an_epoch_that_continues_is_counted_from_where_it_was_left() -> None:
    terminal = Terminal()
    tm = tiny_manager(always_drawn(terminal))
    tm.train_steps(1)
    tm.train_steps(2)
    assert [line.split("[")[0].split("|")[-1].strip() for line in terminal.drawn("epoch 1")] == [
        "0/3",
        "1/3",
        "1/3",
        "2/3",
        "3/3",
    ]


# ---- without a terminal --------------------------------------------------------------------------------------------


def test_nothing_is_printed_if_the_output_is_not_a_terminal(capfd: pytest.CaptureFixture[str]) -> None:
    file = io.StringIO()
    tiny_manager(ProgressBar(interval=0, file=file), epochs=2).train()
    tiny_manager(ProgressBar(interval=0)).train()
    assert (file.getvalue(), capfd.readouterr()) == ("", ("", ""))


def test_in_a_terminal_every_batch_is_drawn_however_many_there_are() -> None:
    terminal = Terminal()
    bar = always_drawn(terminal)
    vars(bar)["_unwatched"] = Pace(clock=lambda: 0.0, most=5)
    tiny_manager(bar).train_steps(12)

    assert len(terminal.drawn("epoch ")) > 12


# ---- ends ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("error", [ValueError("in step 5"), KeyboardInterrupt()])
def test_no_bar_is_left_after_an_error_or_ctrl_c(error: BaseException) -> None:
    terminal = Terminal()
    with pytest.raises(type(error)):
        tiny_manager(always_drawn(terminal), FailAt(5, error), epochs=3).train()
    assert terminal.drawn("epoch 2") != []
    assert terminal.screen() == []


def test_no_bar_is_left_after_an_error_in_an_evaluation() -> None:
    class Fail(Extension):
        def post_eval_step_batch(self) -> None:
            raise ValueError("in the evaluation")

    terminal = Terminal()
    with pytest.raises(ValueError, match="in the evaluation"):
        tiny_manager(always_drawn(terminal), Fail()).train()
    assert terminal.drawn("eval valid") != []
    assert terminal.screen() == []


# ---- cost ------------------------------------------------------------------------------------------------------------


def reads_while_training(tm: TrainManager) -> int:
    reads = HostReads()
    with reads:
        tm.train()
    return reads.count


def test_a_tensor_is_read_once_for_each_drawing() -> None:
    bar = ProgressBar(interval=0, file=Terminal())
    assert reads_while_training(tiny_manager(bar, epochs=2)) == 6


def test_no_value_is_kept_after_its_stage() -> None:
    kept: list[weakref.ref[Tensor]] = []

    class Watch(Extension):
        def post_train_step_batch(self, loss: Tensor) -> None:
            kept.append(weakref.ref(loss))

        def post_train_step_epoch(self) -> None:
            gc.collect()
            self.alive = [ref() is not None for ref in kept]

    watch = Watch()
    tiny_manager(always_drawn(Terminal(), "loss"), watch).train()
    assert watch.alive == [False, False, False]
