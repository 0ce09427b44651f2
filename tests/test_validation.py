from __future__ import annotations

import math
from typing import Any

import pytest

from train_manager import InputError
from train_manager.validation import require_number


def test_a_number_within_its_bounds_is_returned_as_a_float() -> None:
    assert require_number(1, "decay", at_least=0, at_most=1) == 1.0
    assert isinstance(require_number(1, "decay"), float)


@pytest.mark.parametrize("value", [0, -1, math.nan, math.inf, True, "1", None])
def test_what_is_no_finite_number_within_the_bounds_is_refused(value: Any) -> None:
    with pytest.raises(InputError) as error:
        require_number(value, "limit", above=0)
    assert str(error.value) == f"limit is {value!r}\n  give a number above 0"


def test_both_bounds_are_said() -> None:
    with pytest.raises(InputError) as error:
        require_number(1, "decay", at_least=0, below=1)
    assert str(error.value) == "decay is 1\n  give a number of at least 0 and below 1"
