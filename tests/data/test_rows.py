"""Batches of data that gives its examples by row."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from torch.utils.data import TensorDataset

from tests.support.training import refusal
from train_manager import Rows


class Animals:
    """A class of somebody else's: a length, and rows."""

    examples = [(torch.tensor([1.0, 2.0]), "cat", 0), (torch.tensor([3.0, 4.0]), "dog", 1)]

    def __len__(self) -> int:
        return 2

    def __getitem__(self, row: int) -> Any:
        return self.examples[row]


class Named(Animals):
    def __getitem__(self, row: int) -> Any:
        return dict(zip(["size", "name", "label"], super().__getitem__(row), strict=True))


class Frame:
    """As much of a data frame as is used: columns by name, rows by ``iloc``; walking over it gives names."""

    def __init__(self, **columns: np.ndarray[Any, Any]) -> None:
        self._columns = columns
        self.columns = list(columns)
        self.iloc = None

    def __getitem__(self, name: str) -> np.ndarray[Any, Any]:
        return self._columns[name]

    def __len__(self) -> int:
        return len(self._columns[self.columns[0]])


def only_batch(data: Rows) -> Any:
    (batch,) = data
    return batch


# ---- by row ------------------------------------------------------------------------------------------------------


@given(st.integers(1, 30), st.integers(1, 40), st.booleans())
def test_each_example_comes_exactly_once(examples: int, batch_size: int, shuffle: bool) -> None:
    rows = Rows(range(examples), batch_size=batch_size, shuffle=shuffle)
    batches = list(rows)

    assert sorted(torch.cat(batches).tolist()) == list(range(examples))
    assert len(batches) == len(rows)


def test_numbers_become_tensors_and_texts_a_list() -> None:
    sizes, names, labels = only_batch(Rows(Animals(), batch_size=2))

    assert sizes.equal(torch.tensor([[1.0, 2.0], [3.0, 4.0]]))
    assert names == ["cat", "dog"]
    assert labels.equal(torch.tensor([0, 1]))


def test_examples_that_are_dicts_give_a_dict() -> None:
    batch = only_batch(Rows(Named(), batch_size=2))

    assert list(batch) == ["size", "name", "label"]
    assert batch["name"] == ["cat", "dog"]


def test_columns_are_chosen() -> None:
    assert only_batch(Rows(Named(), batch_size=2, columns=["name"])) == {"name": ["cat", "dog"]}


def test_examples_without_labels_give_a_tensor() -> None:
    assert only_batch(Rows([1.0, 2.0], batch_size=2)).equal(torch.tensor([1.0, 2.0], dtype=torch.float64))


def test_a_dataset_that_fetches_many_at_once_is_asked_to() -> None:
    class Fetches(Animals):
        asked: list[list[int]] = []

        def __getitems__(self, rows: list[int]) -> list[Any]:
            self.asked.append(rows)
            return [self[row] for row in rows]

    list(Rows(Fetches(), batch_size=2))

    assert Fetches.asked == [[0, 1]]


def test_the_order_is_a_function_of_seed_and_epoch() -> None:
    first, second = (Rows(range(30), batch_size=30, shuffle=True, seed=1) for _ in range(2))
    list(first)
    second.set_epoch(1)

    assert only_batch(first).equal(only_batch(second))


def test_examples_are_put_together_by_a_function_of_ones_own() -> None:
    assert only_batch(Rows(Animals(), batch_size=2, collate=lambda examples: [name for _, name, _ in examples])) == [
        "cat",
        "dog",
    ]


def test_examples_that_do_not_fit_together_are_refused() -> None:
    ragged = [torch.zeros(2), torch.zeros(3)]

    assert refusal(lambda: list(Rows(ragged, batch_size=2))) == (
        "Rows cannot collate 2 examples: stack expects each tensor to be equal size, but got [2] at "
        "entry 0 and [3] at entry 1\n"
        "  pass collate=..., a function that makes a batch of a list of examples"
    )


@pytest.mark.parametrize("shuffle", [False, True])
def test_the_numbers_of_a_batchs_examples_are_known(shuffle: bool) -> None:
    data = Rows(range(10), batch_size=4, shuffle=shuffle)

    for batch in data:
        assert data.example_index.equal(batch)


# ---- by column ---------------------------------------------------------------------------------------------------


def test_a_dict_of_columns_gives_dicts() -> None:
    data = {"x": torch.ones(3, 2), "age": np.array([1, 2, 3]), "height": [1.5, 2, 3], "name": ["a", "b", "c"]}
    first, second = Rows(data, batch_size=2)

    assert {name: type(column) for name, column in first.items()} == {
        "x": Tensor,
        "age": Tensor,
        "height": Tensor,
        "name": list,
    }
    assert (second["age"].tolist(), second["name"]) == ([3], ["c"])


def test_a_data_frame_gives_dicts_of_its_columns() -> None:
    frame = Frame(age=np.array([31, 47]), name=np.array(["Ann", None], dtype=object))
    batch = only_batch(Rows(frame, batch_size=2))

    assert (batch["age"].tolist(), batch["name"]) == ([31, 47], ["Ann", None])


def test_columns_of_a_data_frame_are_chosen() -> None:
    frame = Frame(age=np.array([31, 47]), name=np.array(["Ann", "Bo"]))

    assert list(only_batch(Rows(frame, batch_size=2, columns="age"))) == ["age"]


def test_the_columns_of_a_row_stay_together() -> None:
    data = {"number": list(range(20)), "text": [str(number) for number in range(20)]}
    for batch in Rows(data, batch_size=3, shuffle=True):
        assert [str(number) for number in batch["number"].tolist()] == batch["text"]


def test_what_is_done_to_a_batch_in_place_does_not_change_the_data() -> None:
    column = torch.ones(2)
    only_batch(Rows({"x": column}, batch_size=2))["x"].zero_()

    assert column.equal(torch.ones(2))


# ---- what is refused ---------------------------------------------------------------------------------------------


def test_columns_of_different_lengths_are_refused() -> None:
    assert refusal(lambda: Rows({"a": [1, 2], "b": [1]}, batch_size=1)) == (
        "Rows was given columns of different lengths: 'a': 2, 'b': 1"
    )


@pytest.mark.parametrize("data", [{"a": [1], "b": [2]}, [{"a": 1, "b": 2}]])
def test_a_column_that_is_not_there_is_refused(data: Any) -> None:
    text = "Rows has no column 'c': the columns are 'a', 'b'"

    assert refusal(lambda: list(Rows(data, batch_size=1, columns=["a", "c"]))) == text


def test_columns_of_examples_without_names_are_refused() -> None:
    assert refusal(lambda: list(Rows([1, 2], batch_size=1, columns=["a"]))) == (
        "Rows was given columns=['a'], but an example is not a dict: int"
    )


@pytest.mark.parametrize("data", [iter([1]), 3])
def test_what_has_no_rows_is_refused(data: Any) -> None:
    assert refusal(lambda: Rows(data, batch_size=1)) == (
        f"Rows was given a {type(data).__name__}, which has no rows: it lacks len(data) or data[i]\n"
        "  pass an iterable of batches to the TrainManager itself"
    )


@pytest.mark.parametrize("data", [[], {}, {"a": []}, TensorDataset(torch.zeros(0))])
def test_no_examples_are_refused(data: Any) -> None:
    assert refusal(lambda: Rows(data, batch_size=1)) == "Rows was given no examples: the length is 0"


def test_a_batch_size_of_none_is_refused() -> None:
    assert refusal(lambda: Rows([1], batch_size=0)) == (
        "Rows's batch_size must be a whole number of at least 1, but is 0"
    )
