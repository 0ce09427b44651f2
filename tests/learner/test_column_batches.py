"""Batches of the rows of columns."""

from __future__ import annotations

from typing import Any

import torch

from train_manager.learner.column_batches import ColumnBatches

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
