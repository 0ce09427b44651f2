"""A training that is tried: what stays of it, and what its run shows."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.support.training import make_batches
from train_manager import Extension, InputError, TrainManager
from train_manager.testing import tiny_manager
from train_manager.trials.trial import Trial


def first_loss(tm: TrainManager, **options: Any) -> float:
    """Try one step of a training, and return its loss."""
    with Trial(tm, "the test", **options) as trial, trial.run() as step:
        return step(next(iter(tm.train_data or ())))


def test_the_loss_of_a_step_is_that_of_the_training() -> None:
    tm = tiny_manager()
    loss = first_loss(tm)

    assert loss == tm.train_on_batch(next(iter(tm.train_data or ())))


def test_the_folders_that_its_run_makes_are_removed(tmp_path: Path) -> None:
    first_loss(tiny_manager(train_dir=tmp_path / "run" / "1"))

    assert list(tmp_path.iterdir()) == []


def test_a_train_dir_with_files_stays_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    tm = tiny_manager(train_dir=tmp_path)
    with Trial(tm, "the test") as trial:
        trial.move_files()
        assert tm.train_dir == tmp_path / ".rehearsal" / "run"

    assert [path.name for path in tmp_path.iterdir()] == ["notes.txt"]
    assert tm.train_dir == tmp_path


def test_a_batch_that_a_step_changes_in_place_stays_as_it_is() -> None:
    class Scales(TrainManager):
        def train_batch(self, batch: Any) -> None:
            batch[0].mul_(2)
            super().train_batch()

    batches = make_batches(1)
    before = batches[0][0].clone()
    plain = tiny_manager()
    tm = Scales(model=plain.model, loss=plain.loss, optimizer=torch.optim.SGD, train_data=batches)
    first_loss(tm)

    assert torch.equal(batches[0][0], before)


def test_its_steps_warn_of_nothing() -> None:
    loud = Extension.of(post_train_step_batch=lambda: warnings.warn("from a hook", stacklevel=1))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        first_loss(tiny_manager(extensions={"loud": loud}), keep=["loud"])


def test_a_loss_that_is_not_finite_is_returned_and_is_no_error_of_the_run() -> None:
    def loss(prediction: Tensor, targets: Tensor) -> Tensor:
        return prediction.sum() * torch.inf

    assert first_loss(tiny_manager(loss=loss)) in (torch.inf, -torch.inf)


def test_a_training_without_a_loss_is_refused_by_the_name_of_the_caller() -> None:
    class Silent(TrainManager):
        def train_batch(self, model: Any, inputs: Tensor) -> None:
            model(inputs)

    tm = Silent(model=torch.nn.Linear(2, 2), optimizer=torch.optim.SGD, train_data=make_batches(1))
    with pytest.raises(InputError, match=r"^the test needs the loss of each batch, but there is none"):
        first_loss(tm)
