"""Lambdas in words."""

from __future__ import annotations

from types import FunctionType
from typing import Any

from train_manager.rebuilding.lambdas import lambda_text

RATE = 0.5


def text_of(function: Any) -> str:
    assert type(function) is FunctionType
    return lambda_text(function)


def test_a_lambda_is_told_by_its_source() -> None:
    assert text_of(lambda value, *, other=2: value + other) == "lambda value, other: value + other"


def test_a_lambda_over_several_lines_is_one_line() -> None:
    made = text_of(
        lambda value: {
            "one": value,
        }
    )

    assert made == 'lambda value: { "one": value, }'


def test_the_numbers_that_a_lambda_uses_are_told() -> None:
    factor, word = 3, "not a number"

    assert text_of(lambda: (RATE * factor, word)) == "lambda: (RATE * factor, word) with RATE=0.5, factor=3"


def test_a_variable_that_is_not_assigned_yet_is_no_error() -> None:
    def make() -> Any:
        text = text_of(lambda: later)
        later: int = 1
        return text, later

    assert make()[0] == "lambda: later"


def test_a_lambda_without_its_source_has_its_place() -> None:
    assert text_of(eval("lambda: 4")) == "lambda at <string>:1"


def test_what_looks_like_a_secret_is_left_out() -> None:
    text = text_of(lambda login: login(password="hunter2hunter3"))

    assert text == 'lambda login: login(password="***")'
