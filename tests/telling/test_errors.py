from __future__ import annotations

import copy
import importlib
import pickle
import traceback
from pathlib import Path

import pytest

import train_manager
from train_manager import InputError, NonFiniteLoss, TrainManagerError
from train_manager.errors import ExtensionNotFound, FixtureExists, FixtureNotFound, HookError, NoStageOpen, StageError
from train_manager.extensions import Checkpoints
from train_manager.telling import errors
from train_manager.telling.errors import did_you_mean, near
from train_manager.telling.source_locations import is_own_line
from train_manager.testing import tiny_manager


@pytest.mark.parametrize(
    ("error", "builtin"),
    [
        (FixtureNotFound, KeyError),
        (FixtureExists, ValueError),
        (NoStageOpen, RuntimeError),
        (StageError, RuntimeError),
        (HookError, TypeError),
        (ExtensionNotFound, KeyError),
        (InputError, ValueError),
        (NonFiniteLoss, ArithmeticError),
    ],
)
def test_each_error_is_of_the_library_and_of_a_fitting_builtin(
    error: type[TrainManagerError], builtin: type[Exception]
) -> None:
    assert issubclass(error, TrainManagerError)
    assert issubclass(error, builtin)
    assert error.__module__ == "train_manager.errors"


def test_a_message_is_not_quoted_though_a_key_error_would_quote_it() -> None:
    assert str(FixtureNotFound("no 'x' here")) == "no 'x' here"


def test_a_message_has_its_lines_in_the_order_of_the_design() -> None:
    error = TrainManagerError(
        "A.post_step wants 'b', which no open stage provides",
        asked_at="a.py:2",
        defined_at="b.py:1",
        stages=["run", "step"],
        alive=["z", "a"],
        cure="did you mean 'a'?",
    )
    assert str(error) == (
        "A.post_step wants 'b', which no open stage provides\n"
        "  defined at   b.py:1\n"
        "  asked at     a.py:2\n"
        "  open stages  run > step\n"
        "  alive        a, z\n"
        "  did you mean 'a'?"
    )


def test_an_error_holds_its_data() -> None:
    error = FixtureNotFound(
        "what", name="b", asked_by="A.f", asked_at="a.py:2", stages=["run"], alive=["z", "a"], nearest=["a"], cure="c"
    )
    assert (error.what, error.name, error.asked_by, error.asked_at) == ("what", "b", "A.f", "a.py:2")
    assert (error.stages, error.alive, error.nearest, error.cure) == (("run",), ("a", "z"), ("a",), "c")


def test_no_open_stage_and_nothing_alive_are_said_in_words() -> None:
    assert str(TrainManagerError("what", stages=[], alive=[])) == ("what\n  open stages  none\n  alive        nothing")


def test_a_long_list_of_live_names_is_told_in_several_lines() -> None:
    names = [f"fixture_{number}" for number in range(10, 19)]
    assert str(TrainManagerError("what", alive=names)) == (
        "what\n"
        "  alive        fixture_10, fixture_11, fixture_12, fixture_13, fixture_14, fixture_15, fixture_16, "
        "fixture_17,\n               fixture_18"
    )


def test_a_list_of_more_than_thirty_live_names_is_cut_so_that_the_cure_stays_in_view() -> None:
    names = [f"x{number:02}" for number in range(33)]
    assert str(TrainManagerError("what", alive=names)).endswith(" x28, x29, ... (3 more)")


@pytest.mark.parametrize("again", [copy.copy, copy.deepcopy, lambda error: pickle.loads(pickle.dumps(error))])
def test_an_error_can_be_copied_and_sent_to_another_process(again: object) -> None:
    error = FixtureNotFound("what", name="x", stages=["run"], alive=["a"], nearest=["a"], cure="cure")
    assert callable(again)
    twin = again(error)
    assert type(twin) is FixtureNotFound
    assert str(twin) == str(error)
    assert vars(twin) == vars(error)


def test_near_names_come_best_first_and_without_the_name_itself() -> None:
    assert near("loss", ["losses", "loss", "los", "prediction"]) == ("los", "losses")


def test_the_same_words_in_another_order_are_meant_first() -> None:
    assert near("train_batch_step", ["train_backward", "train_step_batch"])[0] == "train_step_batch"


def test_nothing_is_meant_where_nothing_is_near() -> None:
    assert did_you_mean(near("loss", ["prediction"])) == ""


def test_the_nearest_name_is_the_one_that_was_meant() -> None:
    assert did_you_mean(("losses", "los")) == "did you mean 'losses'?"


def test_each_error_is_imported_from_the_door_of_errors() -> None:
    for name in errors.__all__:
        assert getattr(importlib.import_module("train_manager.errors"), name) is getattr(errors, name)


def test_a_line_of_the_library_is_not_shown_as_the_line_that_asked() -> None:
    with pytest.raises(InputError) as error:
        tiny_manager(Checkpoints()).train()

    assert str(error.value) == (
        "Checkpoints.around_run (extension 'checkpoints') needs a train_dir, but there is none\n"
        '  pass train_dir="runs/first", or leave that extension out: '
        "default_extensions(files=False) has none that needs it"
    )
    assert "checkpoints.py:" in error.value.asked_at


def test_a_file_beside_the_library_is_not_taken_for_one_of_it() -> None:
    folder = Path(train_manager.__file__).parent
    assert [is_own_line(f"{path}:3") for path in (folder / "loop" / "step.py", f"{folder}_of_mine/step.py")] == [
        True,
        False,
    ]


@pytest.mark.parametrize("name", ["InputError", "NonFiniteLoss"])
def test_a_traceback_shows_the_name_that_users_import(name: str) -> None:
    error = getattr(train_manager, name)("what", cure="cure")
    assert traceback.format_exception_only(error) == [f"train_manager.errors.{name}: what\n  cure\n"]


def test_a_loss_that_is_not_finite_says_in_which_epoch_and_step() -> None:
    error = NonFiniteLoss("the loss was nan", epoch=2, step=7, cure="a smaller rate")
    assert (error.epoch, error.step) == (2, 7)
    assert str(error) == "the loss was nan\n  a smaller rate"
