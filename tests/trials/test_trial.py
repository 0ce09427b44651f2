"""A training that is tried: what stays of it, and what its run shows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.support.training import make_batches
from train_manager import InputError, TrainManager
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


def test_a_train_dir_with_files_stays_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    tm = tiny_manager(train_dir=tmp_path)
    with Trial(tm, "the test") as trial:
        trial.move_files()
        assert tm.train_dir == tmp_path / ".rehearsal" / "run"

    assert [path.name for path in tmp_path.iterdir()] == ["notes.txt"]
    assert tm.train_dir == tmp_path


def test_a_training_without_a_loss_is_refused_by_the_name_of_the_caller() -> None:
    class Silent(TrainManager):
        def train_batch(self, model: Any, inputs: Tensor) -> None:
            model(inputs)

    tm = Silent(model=torch.nn.Linear(2, 2), optimizer=torch.optim.SGD, train_data=make_batches(1))
    with pytest.raises(InputError, match=r"^the test needs the loss of each batch, but there is none"):
        first_loss(tm)
