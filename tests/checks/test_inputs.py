from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from train_manager.checks.inputs import (
    RowsRead,
    check_answers,
    check_labels,
    check_rows,
    check_scale,
    inputs_of_first_layer,
    paths_of_inputs,
)

X = torch.rand(10, 3, generator=torch.Generator().manual_seed(0))
PATH = ("x",)


def rows(*tensors: Tensor) -> RowsRead:
    return RowsRead(({"x": one} for one in tensors), [PATH])


def list_findings(found: Any) -> list[tuple[str, str]]:
    return [(one.level, one.what) for one in found]


def test_some_features_that_are_all_the_same_are_a_note_and_all_of_them_a_warning() -> None:
    assert list_findings(rows(X * torch.tensor([1, 1, 0])).found()) == [
        ("note", "1 of 3 features is the same in all 10 rows")
    ]
    assert list_findings(rows(0 * X, 0 * X).found()) == [("warning", "3 of 3 features are the same in all 20 rows")]


def test_features_that_are_all_the_same_may_have_been_read_wrongly() -> None:
    [finding] = rows(0 * X).found()

    assert finding.cure == "they tell the model nothing: were they read as intended?"


def test_rows_of_several_lengths_have_no_features_to_compare() -> None:
    assert list_findings(rows(torch.ones(2, 3), torch.ones(2, 4), torch.ones(2, 3)).found()) == []


def test_nan_in_targets_is_found() -> None:
    assert list_findings(RowsRead([(X, {"box": torch.tensor([1.0, torch.inf])})], []).found()) == [
        ("error", "1 of 2 numbers in the targets is nan or infinite")
    ]


def test_few_labels_of_one_class_are_no_finding() -> None:
    assert list_findings(check_labels([torch.zeros(7).long()])) == []
    assert list_findings(check_labels([torch.zeros(8).long()])) == [("warning", "the first batch has one class only")]


def test_the_inputs_are_found_in_a_batch_that_was_unpacked() -> None:
    batch = {"pixels": X, "label": X[0], "text": ["a"]}

    assert paths_of_inputs(batch, [X], batch["label"]) == [("pixels",)]
    assert paths_of_inputs(batch, X + 1, batch["label"]) == [("pixels",)]


def test_targets_in_a_batch_that_the_model_gets_as_a_whole_are_no_input() -> None:
    batch = {"image": torch.rand(4, 2), "label": torch.arange(4)}

    assert paths_of_inputs(batch, batch, batch["label"]) == [("image",)]
    assert paths_of_inputs(batch, batch["image"], batch["image"]) == [("image",)]


def test_sparse_inputs_are_left_out() -> None:
    batch = {"graph": X.to_sparse(), "nodes": X}

    assert paths_of_inputs(batch, batch) == [("nodes",)]


def test_the_scale_is_that_of_the_first_layer_with_weights() -> None:
    model = nn.Sequential(nn.BatchNorm1d(3), nn.Linear(3, 2))
    with inputs_of_first_layer(model) as layers:
        model(1000 * X)

    [(layer, given)] = layers
    assert layer == "1 (Linear)"
    assert list_findings(check_scale(layer, given)) == []


def test_outputs_are_compared_with_the_same_random_numbers() -> None:
    def call(batch: dict[str, Tensor]) -> Tensor:
        return nn.functional.dropout(batch["x"])

    found = check_answers(call, {"x": X, "y": X.flip(0)}, [("x",), ("y",)], "outputs")

    assert [(one.what, one.where) for one in found] == [("no output depends on an input", "batch.y")]


def test_an_input_that_is_the_same_for_all_examples_cannot_be_judged() -> None:
    assert (
        list_findings(check_answers(lambda batch: batch["x"], {"x": X, "mask": X > -1}, [("x",), ("mask",)], "outputs"))
        == []
    )


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int64, torch.bool])
def test_rows_of_all_types_are_compared(dtype: torch.dtype) -> None:
    data = (8 * X).to(dtype)
    found = rows(data)

    assert found.count == 10
    assert rows(data[3:4]).distinct <= found.distinct


def test_rows_that_repeat_in_the_training_are_no_excuse() -> None:
    train, evaluated = rows(X, X), rows(torch.cat([X[:4], X[:4], X + 1]))

    assert list_findings(check_rows(train, "valid", evaluated)) == [
        ("warning", "4 of the 14 distinct rows of evaluation set 'valid' are in train_data")
    ]
