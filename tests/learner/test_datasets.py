"""Datasets of a file: the columns of a function, their parts and batches, and what the function must return."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from tests.learner.files import dataset
from train_manager import InputError, recorded
from train_manager.learner import create_dataloader
from train_manager.learner.datasets import ColumnBatches, TooFewRows, split_rows


@recorded
def no_columns() -> Any:
    """A pair, in place of a dict."""
    return torch.zeros(3, 2), torch.zeros(3)


@recorded
def unequal_columns() -> dict[str, Tensor]:
    """A column that is shorter than another."""
    return {"point": torch.zeros(30, 4), "label": torch.arange(29) % 3}


@recorded
def columns_of_texts() -> dict[str, Any]:
    """A column of texts beside one of numbers."""
    return {"point": torch.zeros(30, 4), "label": ["a", "b"] * 15}


@recorded
def many_columns(number: int) -> dict[str, Any]:
    """Inputs and targets of several kinds: tensors, arrays and lists."""
    numbers = torch.arange(number)
    return {
        "left": numbers.float().view(-1, 1),
        "right": np.arange(number, dtype=np.float32).reshape(-1, 1),
        "label": (numbers % 2).tolist(),
        "height": numbers.float() / 10,
    }


def message_of(call: Callable[[], object]) -> str:
    with pytest.raises(InputError) as caught:
        call()
    return str(caught.value)


def of(function: str) -> Any:
    table = dataset(use=function)
    del table["dataset"]["spots"]["number"]
    return table


def test_the_parts_have_all_rows_and_share_none() -> None:
    data = create_dataloader(dataset(split={"train": 0.5, "test": 0.3, "valid": 0.2}))
    parts = [data.unlabelled(), *data.eval_data.values()]
    rows = torch.cat([torch.cat([batch["inputs"] for batch in part]) for part in parts])

    assert [len(part.all()["inputs"]) for part in data.eval_data.values()] == [18, 12]
    assert (len(rows), len(rows.unique(dim=0))) == (60, 60)


def test_a_part_for_tests_has_the_same_rows_in_the_same_order_each_time() -> None:
    one, other = (create_dataloader(dataset()).eval_data["test"].all() for _ in range(2))

    assert one["inputs"].equal(other["inputs"])
    assert torch.cat([batch["targets"] for batch in create_dataloader(dataset()).eval_data["test"]]).equal(
        one["targets"]
    )


def test_the_seed_of_a_dataset_determines_its_split() -> None:
    one, same, other = (create_dataloader(dataset(seed=seed)).eval_data["test"].all()["inputs"] for seed in (0, 0, 1))

    assert one.equal(same)
    assert not one.equal(other)


def test_a_program_that_is_seeded_otherwise_has_the_same_data() -> None:
    torch.manual_seed(1)
    one = next(iter(create_dataloader(dataset()).train_data))
    torch.manual_seed(2)

    assert next(iter(create_dataloader(dataset()).train_data))["inputs"].equal(one["inputs"])


def test_the_labelled_rows_are_training_rows_with_as_many_of_each_label() -> None:
    data = create_dataloader(dataset())
    labelled = torch.cat([batch["targets"] for batch in data.train_data])
    inputs = torch.cat([batch["inputs"] for batch in data.train_data])
    train = torch.cat([batch["inputs"] for batch in data.unlabelled()])

    assert labelled.bincount().tolist() == [8, 8, 8]
    assert (inputs[:, None] == train[None]).all(2).any(1).all()


def test_several_columns_are_dicts() -> None:
    table = {"use": "many_columns", "number": 20, "inputs": ["left", "right"], "targets": ["label", "height"]}
    data = create_dataloader({"dataset": {"many": {**table, "split": {"train": 0.5, "test": 0.5}, "batch_size": 4}}})
    batch = next(iter(data.train_data))

    assert {name: column.shape for name, column in batch["inputs"].items()} == {"left": (4, 1), "right": (4, 1)}
    assert batch["inputs"]["left"].equal(batch["inputs"]["right"])
    assert batch["targets"]["height"].equal(batch["inputs"]["left"].flatten() / 10)
    assert batch["targets"]["label"].equal(batch["inputs"]["left"].flatten().long() % 2)


def test_several_datasets_are_read_in_turns_and_evaluated_by_themselves() -> None:
    table = dataset()["dataset"]["spots"]
    data = create_dataloader({"dataset": {"one": table, "other": {**table, "seed": 1}}})

    assert [batch.datasource_name for batch in data.train_data] == 3 * ["one", "other"]
    assert list(data.eval_data) == ["one test", "other test"]


# ---- mistakes ----


def test_a_function_that_returns_no_dict_is_named() -> None:
    assert (
        message_of(lambda: create_dataloader(of("no_columns")))
        == """\
the dict has a mistake
  the dict  dataset.spots.use is no_columns, which must return a dict of columns, but returned a tuple"""
    )


def test_columns_of_different_lengths_are_named() -> None:
    assert (
        message_of(lambda: create_dataloader(of("unequal_columns")))
        == """\
the dict has a mistake
  the dict  dataset.spots.use is unequal_columns, which returned columns of different lengths: point 30, label 29"""
    )


def test_a_column_of_texts_is_named() -> None:
    assert (
        message_of(lambda: create_dataloader(of("columns_of_texts")))
        == """\
the dict has a mistake
  the dict  dataset.spots.targets names 'label', which must have numbers, one or more for each row
            return a tensor or a list from columns_of_texts"""
    )


def test_a_column_that_is_not_there_is_named_with_the_nearest() -> None:
    assert (
        message_of(lambda: create_dataloader(dataset(targets="lable")))
        == """\
the dict has a mistake
  the dict  dataset.spots.targets names 'lable', which is not a column of spots
            did you mean 'label'? known: point, label"""
    )


@pytest.mark.parametrize(
    ("split", "told"),
    [
        ({"train": 0.5, "test": 0.4}, "dataset.spots.split has the sum 0.9, but must have 1"),
        ({"test": 1.0}, "dataset.spots.split lacks train, the share of the rows that are trained on"),
        (
            {"train": 0.99, "test": 0.01},
            "dataset.spots.split cannot be made: 20 rows of label 0 are too few: test would have none",
        ),
    ],
)
def test_a_split_that_cannot_be_made_is_named(split: dict[str, float], told: str) -> None:
    found = message_of(lambda: create_dataloader(dataset(split=split)))

    assert found.startswith(f"the dict has a mistake\n  the dict  {told}\n")


def test_a_labelled_share_without_a_row_of_a_label_is_named() -> None:
    found = message_of(lambda: create_dataloader(dataset(labelled=0.01)))

    assert found.startswith(
        "the dict has a mistake\n  the dict  dataset.spots.labelled cannot be chosen: "
        "16 rows of label 0 are too few: the labelled part would have none"
    )


# ---- batches ----


ROWS = torch.tensor([1, 3, 5, 7, 9])


def batches(**more: Any) -> ColumnBatches:
    inputs = {"x": torch.arange(10.0)}
    given: dict[str, Any] = {"targets": {"y": torch.arange(10) * 10}, "batch_size": 2, **more}
    return ColumnBatches(given.pop("inputs", inputs), given.pop("targets"), ROWS, **given)


def test_the_rows_are_read_in_their_order() -> None:
    assert [batch["inputs"].tolist() for batch in batches()] == [[1, 3], [5, 7], [9]]
    assert [batch["targets"].tolist() for batch in batches()] == [[10, 30], [50, 70], [90]]


def test_without_targets_there_is_no_key_for_them() -> None:
    assert [list(batch) for batch in batches(targets={})] == 3 * [["inputs"]]


def test_each_epoch_has_all_rows_in_an_order_of_its_own() -> None:
    data = batches(shuffle=True, seed=0)
    epochs = [torch.cat([batch["inputs"] for batch in data]).tolist() for _ in range(6)]

    assert {tuple(sorted(epoch)) for epoch in epochs} == {(1, 3, 5, 7, 9)}
    assert len({tuple(epoch) for epoch in epochs}) > 1


def test_inputs_and_targets_of_a_batch_are_of_the_same_rows() -> None:
    assert all(batch["targets"].equal(batch["inputs"].long() * 10) for batch in batches(shuffle=True))


def test_all_rows_are_one_batch() -> None:
    whole = batches(shuffle=True).all()

    assert (whole["inputs"].tolist(), whole["targets"].tolist()) == ([1, 3, 5, 7, 9], [10, 30, 50, 70, 90])


def test_a_single_column_is_a_dict_where_other_data_have_several() -> None:
    batch = batches(as_dicts=(True, False)).all()

    assert {name: column.tolist() for name, column in batch["inputs"].items()} == {"x": [1, 3, 5, 7, 9]}
    assert batch["targets"].tolist() == [10, 30, 50, 70, 90]


def test_the_columns_have_the_rows_that_are_read() -> None:
    assert {name: column.tolist() for name, column in batches().source.items()} == {
        "x": [1, 3, 5, 7, 9],
        "y": [10, 30, 50, 70, 90],
    }


# ---- splits ----


DIGITS = [178, 182, 177, 183, 181, 182, 181, 179, 174, 180]
"""The rows of each digit in the 1,797 of scikit-learn."""


def test_each_part_has_its_share_of_each_label() -> None:
    labels = torch.tensor([0] * 40 + [1] * 20 + [2] * 4)
    parts = split_rows(labels, 64, {"train": 0.5, "test": 0.25, "valid": 0.25}, seed=0)

    assert {name: labels[rows].bincount().tolist() for name, rows in parts.items()} == {
        "train": [20, 10, 2],
        "test": [10, 5, 1],
        "valid": [10, 5, 1],
    }


def test_every_row_is_in_one_part() -> None:
    parts = split_rows(torch.arange(100) % 7, 100, {"train": 0.7, "test": 0.2, "valid": 0.1}, seed=3)

    assert torch.cat([*parts.values()]).sort().values.equal(torch.arange(100))


def test_the_labelled_twentieth_of_the_digits_has_sixty_nine_rows() -> None:
    labels = torch.cat([torch.full((count,), digit) for digit, count in enumerate(DIGITS)])
    train = split_rows(labels, len(labels), {"train": 0.75, "test": 0.25}, seed=0)["train"]
    chosen = split_rows(labels[train], len(train), {"labelled": 0.05, "rest": 0.95}, seed=0)["labelled"]

    assert (len(train), len(chosen)) == (1347, 69)
    assert set(labels[train][chosen].bincount().tolist()) == {6, 7}


def test_the_seed_determines_the_rows_and_no_random_state_does() -> None:
    labels = torch.arange(60) % 3
    shares = {"train": 0.5, "test": 0.5}
    torch.manual_seed(0)
    one = split_rows(labels, 60, shares, seed=0)["train"]
    torch.manual_seed(1)

    assert split_rows(labels, 60, shares, seed=0)["train"].equal(one)
    assert not split_rows(labels, 60, shares, seed=1)["train"].equal(one)


def test_rows_without_labels_are_split_by_their_number() -> None:
    parts = split_rows(None, 10, {"train": 0.7, "test": 0.3}, seed=0)

    assert {name: len(rows) for name, rows in parts.items()} == {"train": 7, "test": 3}


@pytest.mark.parametrize(
    ("labels", "told"),
    [
        (torch.tensor([0] * 9 + [5]), "1 row of label 5 is too few: test would have none"),
        (None, "3 rows are too few: test would have none"),
    ],
)
def test_a_part_that_would_be_empty_is_refused(labels: torch.Tensor | None, told: str) -> None:
    with pytest.raises(TooFewRows, match=f"^{told}$"):
        split_rows(labels, 3 if labels is None else 10, {"train": 0.9, "test": 0.1}, seed=0)
