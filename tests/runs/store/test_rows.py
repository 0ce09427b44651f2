from __future__ import annotations

import json
import math
from typing import Any

import hypothesis.strategies as st
import numpy as np
import pytest
import torch
from hypothesis import given

from train_manager.runs.store.rows import row_of_text, text_of_row

PLAIN = st.none() | st.booleans() | st.integers() | st.floats() | st.text()
VALUES = st.recursive(PLAIN, lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner), max_leaves=5)


@given(st.dictionaries(st.text(), VALUES))
def test_a_row_of_the_history_comes_back_to_the_bit(row: dict[str, Any]) -> None:
    text = text_of_row(row)

    assert repr(row_of_text(text)) == repr(row)
    json.loads(text, parse_constant=pytest.fail)  # SQLite reads no NaN and no Infinity


@pytest.mark.parametrize(
    ("value", "stored"),
    [
        (torch.tensor([1.0, 2.0]), [1.0, 2.0]),
        (np.float32(0.5), 0.5),
        ([torch.tensor(math.inf)], [math.inf]),
        ({"head": [-math.inf]}, {"head": [-math.inf]}),
        ({(1, 2): 3}, "{(1, 2): 3}"),
        (1j, "1j"),
    ],
)
def test_what_json_lacks_is_stored_in_another_form(value: Any, stored: Any) -> None:
    assert row_of_text(text_of_row({"loss": 0.5, "value": value})) == {"loss": 0.5, "value": stored}


def test_half_a_character_in_a_name_is_stored_as_its_code() -> None:
    assert row_of_text(text_of_row({"a\ud83d": 0.5, "🦊": "\udc80"})) == {"a\\ud83d": 0.5, "🦊": "\\udc80"}


def test_a_value_that_contains_itself_is_stored_as_a_text() -> None:
    circle: list[Any] = []
    circle.append(circle)

    assert row_of_text(text_of_row({"loss": math.nan, "circle": circle}))["circle"] == "[[...]]"
