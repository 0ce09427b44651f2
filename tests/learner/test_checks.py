from __future__ import annotations

import datetime

import pytest

from train_manager import InputError
from train_manager.learner.checks import refuse_unknown, take
from train_manager.learner.description import Description, Mistakes

GIVEN = Description.read({"dataset": {"digits": {"use": "digits", "splitt": 1, "by": 16, "std": "0.1"}}}, "data")
DIGITS = ("dataset", "digits")
KEYS = ("use", "inputs", "split", "by", "std")


def rows_of(mistakes: Mistakes) -> list[str]:
    with pytest.raises(InputError) as caught:
        mistakes.raise_all()
    return [line.removeprefix("  the dict").strip() for line in str(caught.value).splitlines()[1:]]


def test_an_unknown_key_is_refused_with_the_one_that_is_meant() -> None:
    refuse_unknown(mistakes := Mistakes(), GIVEN, DIGITS, KEYS, "a dataset")

    assert rows_of(mistakes) == [
        "dataset.digits.splitt is not a key of a dataset",
        "did you mean 'split'? known: use, inputs, split, by, std",
    ]


def test_a_value_of_the_type_is_returned() -> None:
    mistakes = Mistakes()

    assert take(mistakes, GIVEN, (*DIGITS, "use"), str, needed=True) == "digits"
    assert take(mistakes, GIVEN, DIGITS, dict) == GIVEN.tree["dataset"]["digits"]
    mistakes.raise_all()


def test_a_whole_number_is_a_number() -> None:
    taken = take(mistakes := Mistakes(), GIVEN, (*DIGITS, "by"), float)
    mistakes.raise_all()

    assert (taken, type(taken)) == (16.0, float)


def test_a_key_that_is_not_there_is_none() -> None:
    taken = take(mistakes := Mistakes(), GIVEN, (*DIGITS, "inputs"), str)
    mistakes.raise_all()

    assert taken is None


def test_a_key_that_is_needed_is_asked_for() -> None:
    take(mistakes := Mistakes(), GIVEN, (*DIGITS, "inputs"), str, needed=True)

    assert rows_of(mistakes) == ["dataset.digits needs the key 'inputs': a text"]


@pytest.mark.parametrize(
    ("value", "kind", "what"),
    [
        ("0.1", float, "a number, but is the text '0.1'"),
        (True, float, "a number, but is true"),
        (False, int, "a whole number, but is false"),
        (0.5, int, "a whole number, but is the number 0.5"),
        (1, bool, "true or false, but is the number 1"),
        (3, str, "a text, but is the number 3"),
        ({"a": 1}, list, "a list, but is the table {'a': 1}"),
        ([1, 8, 8], dict, "a table, but is the list [1, 8, 8]"),
        (datetime.date(2026, 1, 2), str, "a text, but is the date 2026-01-02"),
        (datetime.datetime(2026, 1, 2, 3), str, "a text, but is the date 2026-01-02 03:00:00"),
        (datetime.time(3, 4), str, "a text, but is the time 03:04:00"),
    ],
)
def test_a_value_of_another_type_is_named(value: object, kind: type, what: str) -> None:
    given = Description.read({"a": value}, "data")
    taken: object = take(mistakes := Mistakes(), given, ("a",), kind)

    assert taken is None
    assert rows_of(mistakes) == [f"a must be {what}"]
