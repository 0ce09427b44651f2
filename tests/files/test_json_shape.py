from __future__ import annotations

from typing import Any

import pytest

from train_manager.files.json_shape import LIST, NAMES, NUMBER, OBJECT_OF_TEXTS, TIME, Shape, wrong_in

SHAPE: Shape = {"runs": LIST.required, "runs[].steps": NUMBER.required, "runs[].began": TIME, "names": NAMES}


@pytest.mark.parametrize(
    ("value", "wrong"),
    [
        ({"runs": [{"steps": 3, "began": "2026-05-01T12:00:00+00:00"}], "names": ["a"]}, None),
        ({"runs": 3}, "3 at runs, where a list belongs"),
        ({"runs": [{"steps": 3}, {"steps": True}]}, "True at runs[1].steps, where a whole number belongs"),
        ({"runs": [{"began": "yesterday"}]}, "'yesterday' at runs[0].began, where a time with its zone belongs"),
        ({"names": ["a\0b"]}, r"['a\x00b'] at names, where a list of names belongs"),
        ({"names": ["\ud800"]}, r"['\ud800'] at names, where a list of names belongs"),
    ],
)
def test_the_first_value_that_does_not_fit_is_told(value: Any, wrong: str | None) -> None:
    assert wrong_in(value, SHAPE) == wrong


def test_only_of_a_whole_file_what_is_absent_is_told() -> None:
    assert wrong_in({}, SHAPE) is None
    assert wrong_in({}, SHAPE, is_whole=True) == "nothing at runs, where a list belongs"
    assert wrong_in({"runs": [{}]}, SHAPE, is_whole=True) == "nothing at runs[0].steps, where a whole number belongs"


@pytest.mark.parametrize("value", [[], {"a": 1}, "a", 3])
def test_what_is_no_object_of_texts_is_told(value: Any) -> None:
    assert wrong_in({"variables": value}, {"variables": OBJECT_OF_TEXTS}) is not None
