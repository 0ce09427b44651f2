"""Datasets of a file: the columns of a function, their parts and batches, and what the function must return."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from tests.learner.files import dataset
from tests.support.refusals import refusal
from train_manager import recorded
from train_manager.learner import create_dataloader
from train_manager.learner.datasets import ColumnBatches, split_rows


@recorded
def no_columns() -> Any:
    """A pair, in place of a dict."""
    return torch.zeros(3, 2), torch.zeros(3)


@recorded
def unequal_columns() -> dict[str, Tensor]:
    """A column that is shorter than another."""
    return {"point": torch.zeros(30, 4), "label": torch.arange(29) % 3}


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
        refusal(lambda: create_dataloader(of("no_columns")))
        == """\
the dict has a mistake
  the dict  dataset.spots.use is no_columns, which must return a dict of columns, but returned a tuple"""
    )


def test_columns_of_different_lengths_are_named() -> None:
    assert (
        refusal(lambda: create_dataloader(of("unequal_columns")))
        == """\
the dict has a mistake
  the dict  dataset.spots.use is unequal_columns, which returned columns of different lengths: point 30, label 29"""
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


def test_a_single_column_is_a_dict_where_other_data_have_several() -> None:
    batch = batches(as_dicts=(True, False)).all()

    assert {name: column.tolist() for name, column in batch["inputs"].items()} == {"x": [1, 3, 5, 7, 9]}
    assert batch["targets"].tolist() == [10, 30, 50, 70, 90]


# ---- splits ----


def test_rows_without_labels_are_split_by_their_number() -> None:
    parts = split_rows(None, 10, {"train": 0.7, "test": 0.3}, seed=0)

    assert {name: len(rows) for name, rows in parts.items()} == {"train": 7, "test": 3}
