"""What `diagnose` tells of faults in the data."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset, Subset, SubsetRandomSampler, TensorDataset

from tests.trials.diagnosed import Model, X, Y, asked, covered, list_findings, not_looked_at, said
from train_manager import (
    Endless,
    InMemory,
    SeededDataLoader,
)

# ---- input -----------------------------------------------------------------------------------------------------------


def test_labels_that_the_outputs_have_no_class_for_are_found() -> None:
    assert said("input", train_data=[(X, 5 * Y)]) == [
        "error: the labels go from 0 to 5, but the outputs have 2 classes: 0 to 1 @ targets"
    ]


@pytest.mark.parametrize("check", ["overfit", "initial loss"])
def test_a_step_that_fails_is_no_clean_one(check: str) -> None:
    found = asked(check, train_data=[(X, 5 * Y)])

    assert not_looked_at(found) == [
        f"{check}: it failed with LabelsOutOfRange: the labels go from 0 to 5, but the outputs have 2 classes: 0 to 1"
    ]


def test_nan_in_the_data_is_found() -> None:
    x = X.clone()
    x[3, 1] = math.nan
    found = asked("input", train_data=[(x, Y)])

    assert list_findings(found)[0] == "error: 1 of 32 numbers in the inputs is nan or infinite @ batch.0"


@pytest.mark.parametrize(
    ("data", "what"),
    [
        ((255 * X).round(), "bytes from 0 to 255 reach the first layer as they are"),
        (1000 * X, "numbers of a scale of 628 reach the first layer"),
    ],
    ids=["bytes", "large"],
)
def test_numbers_that_were_not_scaled_are_found(data: Tensor, what: str) -> None:
    assert list_findings(asked("input", train_data=[(data, Y)])) == [f"warning: {what} @ body (Linear)"]


def test_numbers_that_the_model_scales_itself_are_no_finding() -> None:
    class Scaled(Model):
        def forward(self, inputs: Tensor) -> Tensor:
            return super().forward(inputs.float() / 255)

    asked("input", Scaled(), train_data=[((255 * X).byte(), Y)]).require_none()


def test_a_batch_of_one_class_is_found() -> None:
    assert said("input", train_data=[(X, 0 * Y), (X + 1, 0 * Y + 1)]) == [
        "warning: each of the first 2 batches has one class only @ targets"
    ]


def test_a_model_that_answers_the_same_to_all_examples_is_found() -> None:
    assert said("input", Model(hidden=lambda h: 0 * h)) == ["warning: the outputs are the same for all 16 examples"]


def test_an_input_that_changes_no_output_is_found() -> None:
    class TwoInputs(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = Model()

        def forward(self, left: Tensor, right: Tensor) -> Any:
            return self.layer(left)

    assert said("input", TwoInputs(), train_data=[({"left": X, "right": X.flip(0)}, Y)]) == [
        "warning: no output depends on an input @ batch.0.right"
    ]


def test_rows_that_are_in_an_evaluation_set_too_are_found_and_counted() -> None:
    evaluated = [(torch.cat([X[:5], X[5:10] + 1]), Y[:10])]
    found = asked("input", train_data=[(X, Y)], eval_data={"valid": evaluated})

    assert list_findings(found) == ["warning: 5 of the 10 rows of evaluation set 'valid' are in train_data @ valid"]
    assert covered(found, "input") == (
        "all 16 rows, compared with all 10 rows of evaluation set 'valid', outputs after 3 steps"
    )


def loader(x: Tensor, y: Tensor, **options: Any) -> Any:
    return DataLoader(TensorDataset(x, y), batch_size=4, **options)


def in_memory(x: Tensor, y: Tensor, **options: Any) -> Any:
    return InMemory(x, y, batch_size=4, **options)


def part(x: Tensor, y: Tensor, **options: Any) -> Any:
    return DataLoader(Subset(TensorDataset(x, y), range(len(x))), batch_size=4, **options)


def seeded(x: Tensor, y: Tensor, **options: Any) -> Any:
    return SeededDataLoader(TensorDataset(x, y), batch_size=4, **options)


MANY = torch.rand(200, 2, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize("made", [loader, in_memory, part, seeded])
def test_all_rows_of_data_in_memory_are_looked_at(made: Any) -> None:
    y, broken = (MANY.sum(1) > 1).long(), MANY.clone()
    broken[150, 0] = math.nan
    found = asked("input", train_data=made(broken, y), eval_data={"valid": made(broken[160:], y[160:], shuffle=True)})

    assert list_findings(found) == [
        "error: 1 of 400 numbers in the inputs is nan or infinite @ batch.0",
        "warning: 40 of the 40 rows of evaluation set 'valid' are in train_data @ valid",
    ]
    assert covered(found, "input") == (
        "all 200 rows, compared with all 40 rows of evaluation set 'valid', outputs after 3 steps"
    )


class Computed(Dataset[Any]):
    """Rows that are made as they are asked for."""

    def __len__(self) -> int:
        return 200

    def __getitem__(self, index: int) -> Any:
        return MANY[index], int(MANY[index].sum() > 1)


def test_rows_that_are_computed_are_read_too() -> None:
    found = asked("input", train_data=DataLoader(Computed(), batch_size=4))

    assert covered(found, "input") == "all 200 rows, outputs after 3 steps"


def test_it_is_told_if_not_all_rows_were_read() -> None:
    found = asked("input", train_data=Endless(in_memory(X, Y)))

    assert covered(found, "input") == "the first 4,000 rows, outputs after 3 steps"


def test_rows_that_a_sampler_leaves_out_are_not_those_of_the_training() -> None:
    data = TensorDataset(MANY, (MANY.sum(1) > 1).long())
    halves = [DataLoader(data, batch_size=4, sampler=SubsetRandomSampler(range(n, n + 60))) for n in (0, 60)]
    found = asked("input", train_data=halves[0], eval_data={"valid": halves[1]})

    assert list_findings(found) == []
    assert covered(found, "input").startswith("all 60 rows, compared with all 60 rows of evaluation set 'valid'")


def test_a_set_to_measure_the_training_with_is_a_note() -> None:
    found = asked("input", train_data=[(X, Y)], eval_data={"train": [(X.clone(), Y)]})

    assert [one.level for one in found] == ["note"]
