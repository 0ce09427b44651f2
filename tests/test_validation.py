"""Numbers and words that a caller passes: what is accepted, and how the rest is refused."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from train_manager import InputError
from train_manager.errors import HookError
from train_manager.validation import require_count, require_number, require_one_of


def refusal(call: Callable[[], object]) -> str:
    with pytest.raises(InputError) as caught:
        call()
    return str(caught.value)


# ---- counts ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("value", "shown"), [(-1, "-1"), ("3", "'3'"), (2.0, "2.0"), (None, "None"), (True, "True")])
def test_a_count_is_a_whole_number_that_is_large_enough(value: Any, shown: str) -> None:
    text = refusal(lambda: require_count(value, "epochs", at_least=0))

    assert text == f"epochs must be a whole number of at least 0, but is {shown}"


def test_a_count_that_is_large_enough_passes() -> None:
    assert require_count(0, "epochs", at_least=0) == 0


def test_a_count_without_a_bound_may_be_negative() -> None:
    assert require_count(-3, "seed") == -3


def test_a_count_of_numpy_becomes_pythons() -> None:
    assert type(require_count(np.int64(2), "epochs", at_least=0)) is int  # type: ignore[arg-type]


@pytest.mark.parametrize("value", [np.zeros(2, dtype=int), torch.tensor(2.5)])
def test_an_array_that_is_not_one_whole_number_is_refused(value: Any) -> None:
    assert refusal(lambda: require_count(value, "epochs", at_least=0)).startswith("epochs must be a whole number")


def test_the_caller_chooses_the_error_and_its_cure() -> None:
    with pytest.raises(HookError) as caught:
        require_count(0, "every's n", at_least=1, cure="write @every(50)", error=HookError)

    assert caught.value.cure == "write @every(50)"


# ---- numbers -----------------------------------------------------------------------------------------------------


def test_a_number_within_its_bounds_is_returned_as_a_float() -> None:
    assert require_number(1, "decay", at_least=0, at_most=1) == 1.0
    assert isinstance(require_number(1, "decay"), float)


@pytest.mark.parametrize("value", [0, -1, math.nan, math.inf, True, "1", None])
def test_what_is_no_finite_number_within_the_bounds_is_refused(value: Any) -> None:
    assert (
        refusal(lambda: require_number(value, "limit", above=0)) == f"limit must be a number above 0, but is {value!r}"
    )


def test_both_bounds_are_said() -> None:
    text = refusal(lambda: require_number(1, "decay", at_least=0, below=1))

    assert text == "decay must be a number of at least 0 and below 1, but is 1"


# ---- words -------------------------------------------------------------------------------------------------------


def test_a_word_that_is_not_allowed_is_refused() -> None:
    text = refusal(lambda: require_one_of("steps", "at", ("step", "epoch")))

    assert text == "at must be 'step' or 'epoch', but is 'steps'"


def test_three_words_are_listed() -> None:
    text = refusal(lambda: require_one_of("x", "by", ("epoch", "batch", "example")))

    assert text == "by must be 'epoch', 'batch' or 'example', but is 'x'"
