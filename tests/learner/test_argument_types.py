from __future__ import annotations

from collections.abc import Mapping
from inspect import signature
from typing import Any, Literal

import pytest
from torch import Tensor, nn

from train_manager.learner.argument_types import misfit
from train_manager.learner.words import parameters_of


def takes(  # type: ignore[no-untyped-def]
    whole: int,
    number: float,
    flag: bool,
    text: str,
    word: Literal["same", "valid"],
    pair: tuple[int, int],
    several: list[float],
    table: Mapping[str, int],
    rate: float | Tensor,
    maybe: int | None = None,
    tensor: Tensor | None = None,
    plain: Any = None,
    untyped=0.1,
) -> None:
    """Take an argument of each type."""


def said_of(name: str, value: object) -> str:
    return misfit(value, takes, signature(takes).parameters[name])


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("whole", "3", "must be a whole number, but is the text '3'"),
        ("whole", 3.0, "must be a whole number, but is the number 3.0"),
        ("whole", True, "must be a whole number, but is true"),
        ("number", "0.1", "must be a number, but is the text '0.1'"),
        ("number", False, "must be a number, but is false"),
        ("flag", 1, "must be true or false, but is the number 1"),
        ("text", 5, "must be a text, but is the number 5"),
        ("word", "smae", "must be 'same' or 'valid', but is the text 'smae'"),
        ("pair", 3, "must be a list of 2 whole numbers, but is the number 3"),
        ("pair", [3], "must be a list of 2 whole numbers, but is the list [3]"),
        ("several", ["1"], "must be a list of numbers, but is the list ['1']"),
        ("table", 3, "must be a table, but is the number 3"),
        ("rate", "1e-3", "must be a number, but is the text '1e-3'"),
        ("maybe", "3", "must be a whole number, but is the text '3'"),
        ("untyped", "high", "must be a number, but is the text 'high'"),
    ],
)
def test_a_value_of_another_type_is_named_with_the_type_that_is_meant(name: str, value: object, message: str) -> None:
    assert said_of(name, value) == message


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *(("whole", 3), ("number", 3), ("number", 0.5), ("flag", True), ("text", ""), ("word", "same")),
        *(("pair", [3, 4]), ("several", []), ("several", [1, 0.5]), ("table", {"a": 1}), ("rate", 1e-3)),
        *(("maybe", 3), ("plain", "anything"), ("untyped", 3)),
    ],
)
def test_a_value_of_the_type_fits(name: str, value: object) -> None:
    assert said_of(name, value) == ""


def test_a_layer_of_torch_has_no_device_and_no_type_in_a_file() -> None:
    assert list(parameters_of(nn.Linear)) == ["in_features", "out_features", "bias"]


def test_an_lstm_has_the_arguments_of_its_base_class() -> None:
    names = list(parameters_of(nn.LSTM))

    assert names[:3] == ["input_size", "hidden_size", "num_layers"]
    assert not {"mode", "device", "dtype"} & set(names)
