"""The frames that a traceback shows: those of the user, and the call that they began with."""

from __future__ import annotations

import signal
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

from tests.support.training import At
from train_manager import Extensible, Extension, InputError, TrainManager, always
from train_manager.errors import FixtureNotFound
from train_manager.extensions import Checkpoints
from train_manager.telling.tracebacks import FULL_TRACEBACK, hide_own_frames
from train_manager.testing import tiny_manager

ENTRY = ["train", "_make_call"]


class Failing(Extension):
    def post_train_step_batch(self) -> None:
        raise KeyError("in a hook")


class Examples(Dataset[Any]):
    def __len__(self) -> int:
        return 4

    def __getitem__(self, number: int) -> Any:
        raise OSError("in a dataset")


class FailingNet(nn.Linear):
    def forward(self, inputs: Any) -> Any:
        raise RuntimeError("in a model")


class OwnBatch(TrainManager):
    def train_batch(self) -> None:
        self.update(self.forward())


class Worker(Extensible):
    def work(self) -> None:
        with self.staged("outer"):
            self.inner()

    def inner(self) -> None:
        with self.staged("work"):
            self.fixtures["size"] = 1


def failing_loss(prediction: Any, targets: Any) -> Any:
    raise ValueError("in a loss")


def error_of(do: Callable[[], object]) -> BaseException:
    try:
        do()
    except BaseException as error:
        return error
    raise AssertionError("no error")


def frames(error: BaseException) -> list[str]:
    """The functions of a traceback, without that of ``error_of``."""
    return [entry.name for entry in traceback.extract_tb(error.__traceback__)][1:]


def test_an_error_in_a_hook_shows_the_call_and_the_hook() -> None:
    assert frames(error_of(tiny_manager(Failing()).train)) == [*ENTRY, "post_train_step_batch"]


def test_an_error_in_the_loss_shows_the_call_and_the_loss() -> None:
    assert frames(error_of(tiny_manager(loss=failing_loss).train)) == [*ENTRY, "failing_loss"]


def test_an_error_in_the_model_shows_the_frames_of_torch_too() -> None:
    model = FailingNet(2, 2)

    assert frames(error_of(tiny_manager(model=model).train)) == [*ENTRY, "_wrapped_call_impl", "_call_impl", "forward"]


def test_an_error_in_a_dataset_shows_the_dataset() -> None:
    shown = frames(error_of(tiny_manager(train_data=DataLoader(Examples()), eval_data=None).train))

    assert (shown[:2], shown[2], shown[-1]) == (ENTRY, "__next__", "__getitem__")


def test_an_own_train_batch_stays_among_the_frames() -> None:
    tm = OwnBatch(
        model=nn.Linear(2, 2), loss=failing_loss, optimizer=torch.optim.SGD, train_data=[(torch.ones(2, 2), None)]
    )

    assert frames(error_of(tm.train)) == [*ENTRY, "train_batch", "failing_loss"]


@pytest.mark.parametrize("method", ["eval", "predict", "train_on_batch", "eval_on_batch"])
def test_each_call_hides_what_it_calls(method: str) -> None:
    tm = tiny_manager(model=FailingNet(2, 2))
    arguments = {"eval": (), "predict": (torch.ones(2, 2),)}.get(method, (tm.train_data[0],))  # type: ignore[index]

    shown = frames(error_of(lambda: getattr(tm, method)(*arguments)))

    assert shown == ["<lambda>", method, "_wrapped_call_impl", "_call_impl", "forward"]


def test_a_call_that_joins_an_open_run_hides_its_frames() -> None:
    def train() -> None:
        tm = tiny_manager(Failing())
        with tm.run():
            tm.train()

    assert frames(error_of(train)) == ["train", "post_train_step_batch"]


def test_an_error_of_this_library_ends_at_the_call() -> None:
    assert frames(error_of(tiny_manager(train_data=[1]).train)) == ENTRY


def test_ctrl_c_ends_at_the_call(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    press = At("post_train_loss_forward", lambda: signal.raise_signal(signal.SIGINT))
    error = error_of(tiny_manager(Checkpoints(), press, train_dir=tmp_path).train)

    assert (type(error), frames(error)) == (KeyboardInterrupt, ENTRY)
    assert capfd.readouterr().err.startswith("SIGINT: ending after this step")


def test_an_argument_of_the_constructor_ends_at_the_call() -> None:
    def make() -> None:
        TrainManager(model=nn.Linear(1, 1), epochs=-1)

    assert frames(error_of(make)) == ["make", "checked"]


def test_the_last_frame_stays_if_the_error_is_none_of_this_library() -> None:
    error = error_of(tiny_manager(loss=torch.mm).train)  # a function in C, which has no frame

    assert (type(error), frames(error)) == (RuntimeError, [*ENTRY, "loss_forward"])


def test_the_stages_of_a_plain_extensible_hide_their_frames() -> None:
    fail = Extension.of(pre_work=lambda: 1 / 0)

    assert frames(error_of(Worker([fail]).work)) == ["work", "inner", "<lambda>"]


def test_a_missing_fixture_ends_at_the_line_of_the_user() -> None:
    class Reads(Extensible):
        def work(self) -> None:
            with self.staged("work"):
                self.fixtures["size"]

    error = error_of(Reads().work)

    assert (type(error), frames(error)) == (FixtureNotFound, ["work"])


def test_errors_of_a_group_hide_their_frames_too() -> None:
    class Always(Extension):
        @always
        def post_work(self) -> None:
            raise KeyError("too")

    error = error_of(Worker([Extension.of(post_work=lambda: 1 / 0), Always()]).work)

    assert isinstance(error, ExceptionGroup)
    assert [frames(inner) for inner in error.exceptions] == [["<lambda>"], ["post_work"]]


def test_a_cause_is_kept_with_its_own_frames() -> None:
    def chained() -> None:
        try:
            failing_loss(1, 2)
        except ValueError as error:
            raise KeyError("later") from error

    error = error_of(tiny_manager(At("post_train_step_batch", chained)).train)

    assert isinstance(error.__cause__, ValueError)
    assert frames(error.__cause__) == ["failing_loss"]


def shown_as_it_ends(do: Callable[[], object], monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return the names of the frames that are shown of an error, as if it ended the program."""
    shown: list[TracebackType | None] = []
    monkeypatch.setattr("sys.excepthook", lambda kind, error, traceback: shown.append(traceback))
    error = error_of(do)
    sys.excepthook(type(error), error, error.__traceback__)
    return [frame.name for frame in traceback.extract_tb(shown[0])]


def test_of_an_interrupt_that_ends_the_program_the_users_line_is_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    press = At("post_train_step_batch", lambda: signal.raise_signal(signal.SIGINT))
    tm = tiny_manager(Checkpoints(), press, train_dir=tmp_path)

    assert shown_as_it_ends(tm.train, monkeypatch) == ["error_of"]


def test_the_frames_of_any_other_error_that_ends_the_program_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    frames_of_training = ["error_of", *ENTRY, "post_train_step_batch"]

    assert shown_as_it_ends(tiny_manager(Failing()).train, monkeypatch) == frames_of_training


def test_the_hook_that_shows_errors_is_the_one_from_before_after_an_interrupt(monkeypatch: pytest.MonkeyPatch) -> None:
    before = sys.excepthook
    monkeypatch.setattr("sys.excepthook", ignored := lambda *error: None)
    hide_own_frames(KeyboardInterrupt())
    hide_own_frames(KeyboardInterrupt())
    assert sys.excepthook is not ignored
    sys.excepthook(KeyboardInterrupt, KeyboardInterrupt(), None)

    assert sys.excepthook is ignored is not before


def test_errors_that_cause_each_other_in_a_circle_end() -> None:
    first, second = InputError("1"), InputError("2")
    first.__cause__, second.__cause__ = second, first

    hide_own_frames(first)

    assert first.__cause__ is second


def test_notes_stay() -> None:
    assert error_of(tiny_manager(Failing()).train).__notes__[0].startswith("in hook Failing.post_train_step_batch")


def test_a_debugger_reaches_the_variables_of_the_last_frame() -> None:
    error = error_of(tiny_manager(loss=failing_loss).train)
    *_, (frame, _) = traceback.walk_tb(error.__traceback__)

    assert {"prediction", "targets"} <= set(frame.f_locals)


def test_an_environment_variable_keeps_all_frames(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(FULL_TRACEBACK, "1")

    assert "_train_step_batch" in frames(error_of(tiny_manager(Failing()).train))
