"""The augmentation of a file: training batches alone are changed, by functions that draw from torch's random state."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from tests.learner.files import dataset, learner_of, right
from train_manager import Extension, InputError
from train_manager.learner import create_dataloader, eval_model
from train_manager.learner.augment import Augment

NOISE = {"use": "noise", "std": 0.1}


def test_the_changes_are_made_one_after_the_other() -> None:
    augment = Augment([{"use": "divide", "by": 2.0}, {"use": "divide", "by": 5.0}], ["x"])

    assert augment.views(torch.tensor([10.0])).tolist() == [1.0]


def test_only_the_column_that_is_named_is_changed() -> None:
    augment = Augment([{"use": "divide", "by": 2.0, "of": "right"}], ["left", "right"])
    given = {"left": torch.tensor([4.0]), "right": torch.tensor([4.0])}

    assert {name: column.item() for name, column in augment.views(given).items()} == {"left": 4.0, "right": 2.0}
    assert given["right"].item() == 4.0


def test_a_column_that_a_batch_does_not_have_is_left_out() -> None:
    augment = Augment([{**NOISE, "of": "right"}], ["left", "right"])
    given = {"left": torch.tensor([4.0])}

    assert augment.views(given) == given


def test_of_several_columns_one_must_be_named() -> None:
    with pytest.raises(InputError, match=r'augment\[0\] lacks of = "...", one of the inputs left and right'):
        Augment([NOISE], ["left", "right"])


def test_training_batches_are_changed_and_the_data_and_evaluations_are_not() -> None:
    seen: list[torch.Tensor] = []

    def keep(inputs: torch.Tensor) -> None:
        seen.append(inputs)

    learner = learner_of(dataset(augment=[{"use": "divide", "by": 1000.0}]))
    data: Any = create_dataloader(dataset(augment=[{"use": "divide", "by": 1000.0}]))
    learner.tm.add_extension(Extension.of(post_train_step_batch=keep))
    learner.train_epoch()
    model: Any = learner.tm.model
    result = eval_model(data, model, [right])["test"]

    assert max(float(inputs.abs().max()) for inputs in seen) < 0.1
    assert float(result.inputs.abs().max()) > 1
    assert float(data.train_data.all()["inputs"].abs().max()) > 1


def test_data_without_augment_have_none() -> None:
    assert create_dataloader(dataset(augment=[])).augment is None


def test_a_batch_keeps_its_targets() -> None:
    batch = {"inputs": torch.zeros(2, 1), "targets": torch.tensor([0, 1])}
    changed = Augment([NOISE], ["x"]).pre_train_step_batch(batch)

    assert changed["targets"] is batch["targets"]
    assert not changed["inputs"].equal(batch["inputs"])


def test_two_datasets_that_change_a_column_differently_are_refused() -> None:
    table = dataset()["dataset"]["spots"]
    with pytest.raises(InputError, match=r"dataset\.other\.augment changes point otherwise than dataset\.one does"):
        create_dataloader({"dataset": {"one": table, "other": {**table, "augment": [{**NOISE, "std": 0.2}]}}})
