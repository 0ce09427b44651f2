"""The errors of a training run, beside those of the core (``core/test_errors.py``)."""

from __future__ import annotations

import pickle
import traceback

import pytest

import train_manager
from train_manager import InputError, NonFiniteLoss, TrainManagerError


@pytest.mark.parametrize(("error", "builtin"), [(InputError, ValueError), (NonFiniteLoss, ArithmeticError)])
def test_each_error_is_of_the_library_and_of_a_fitting_builtin(
    error: type[TrainManagerError], builtin: type[Exception]
) -> None:
    assert issubclass(error, TrainManagerError)
    assert issubclass(error, builtin)


@pytest.mark.parametrize("name", ["InputError", "NonFiniteLoss"])
def test_a_traceback_shows_the_name_that_users_import(name: str) -> None:
    error = getattr(train_manager, name)("what", cure="cure")
    assert traceback.format_exception_only(error) == [f"train_manager.errors.{name}: what\n  cure\n"]


def test_a_loss_that_is_not_finite_says_in_which_epoch_and_step() -> None:
    error = NonFiniteLoss("the loss was nan", epoch=2, step=7, cure="a smaller rate")
    assert (error.epoch, error.step) == (2, 7)
    assert str(error) == "the loss was nan\n  a smaller rate"


@pytest.mark.parametrize(
    "error", [InputError("what", name="x", cure="cure"), NonFiniteLoss("what", epoch=2, step=7, cure="cure")]
)
def test_an_error_can_be_sent_to_another_process(error: TrainManagerError) -> None:
    twin = pickle.loads(pickle.dumps(error))
    assert type(twin) is type(error)
    assert str(twin) == str(error)
    assert vars(twin) == vars(error)
