from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch

from train_manager.trials.comparing import differences

NAMES = ("straight run", "resumed run")

DIFFERENT: dict[str, tuple[Any, Any, str]] = {
    "a number": ({"a": {"b": 1.5}}, {"a": {"b": 2.5}}, "a > b: 1.5 in the straight run, 2.5 in the resumed run"),
    "a type": ({"a": 1}, {"a": 1.0}, "a: 1 in the straight run, 1.0 in the resumed run"),
    "a name less": ({"a": {"b": 1}}, {"a": {}}, "a > b: missing in the resumed run"),
    "a name more": ({}, {"a": 1}, "a: missing in the straight run"),
    "a length": ([1, 2], [1], "the state: a list of 2 in the straight run, a list of 1 in the resumed run"),
    "a place": ({"a": (1, 2)}, {"a": (1, 3)}, "a > 1: 2 in the straight run, 3 in the resumed run"),
    "a shape": (
        torch.ones(2, 3),
        torch.ones(3),
        "the state: 2x3 of float32 in the straight run, 3 of float32 in the resumed run",
    ),
    "a dtype": (
        torch.ones(()),
        torch.ones((), dtype=torch.float64),
        "the state: a scalar of float32 in the straight run, a scalar of float64 in the resumed run",
    ),
    "values": (torch.tensor([1.0, 2.0]), torch.tensor([1.0, 2.5]), "the state: 1 of 2 values differ, by 0.5 at most"),
    "an array": (np.array([1, 2]), np.array([4, 2]), "the state: 1 of 2 values differ, by 3 at most"),
    "the sign of zero": (torch.tensor([0.0]), torch.tensor([-0.0]), "the state: 1 of 1 values differ, by 0 at most"),
}


@pytest.mark.parametrize("case", DIFFERENT)
def test_a_difference_is_told_by_its_path_and_how(case: str) -> None:
    one, other, told = DIFFERENT[case]

    assert list(differences(one, other, NAMES)) == [told]


@pytest.mark.parametrize(
    "value",
    [
        math.nan,
        torch.tensor([math.nan, 1.0]),
        torch.empty(0),
        torch.tensor(3, dtype=torch.bfloat16),
        torch.tensor([1 + 2j]),
        np.array([], dtype=np.uint32),
        {"a": [None, "text", b"bytes", (True,)]},
    ],
    ids=str,
)
def test_equal_values_have_no_differences(value: Any) -> None:
    assert list(differences({"a": value}, {"a": value}, NAMES)) == []


def test_times_are_not_compared() -> None:
    assert list(differences({"seconds": 1.0}, {"seconds": 2.0}, NAMES)) == []
