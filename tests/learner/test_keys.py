from __future__ import annotations

from typing import Any

import pytest

from train_manager import InputError
from train_manager.learner.description import Description, Mistakes
from train_manager.learner.keys import (
    COUNT,
    NAMES,
    NUMBER,
    SHARE,
    TABLE,
    TABLES,
    TEXT,
    WHOLE,
    Form,
    Key,
    read_keys,
    read_tables,
)


def said_of(form: Form, value: Any) -> str:
    """Return what is said of a value; empty if it has the form."""
    tree, mistakes = {"key": value}, Mistakes()
    read_keys(Description.read(tree, "it"), (), tree, {"key": Key(form, "a key")}, mistakes)
    return message_of(mistakes)


def message_of(mistakes: Mistakes) -> str:
    try:
        mistakes.raise_all()
    except InputError as error:
        return str(error).removeprefix("the dict has a mistake\n  the dict  ")
    return ""


@pytest.mark.parametrize(
    ("form", "value", "message"),
    [
        (TEXT, 3, "key must be a text that is not empty, but is the number 3"),
        (TEXT, "", "key must be a text that is not empty, but is the text ''"),
        (NAMES, [], "key must be a name or a list of names, but is the list []"),
        (NAMES, ["a", 1], "key must be a name or a list of names, but is the list ['a', 1]"),
        (TABLE, 0.75, "key must be a table, but is the number 0.75"),
        (TABLES, ["relu"], "key must be a list of tables, but is the list ['relu']\n            "
         'write [{ use = "..." }]'),
        (COUNT, 0, "key must be a whole number from 1 on, but is the number 0"),
        (COUNT, True, "key must be a whole number from 1 on, but is true"),
        (COUNT, 2.0, "key must be a whole number from 1 on, but is the number 2.0"),
        (WHOLE, -1, "key must be a whole number from 0 on, but is the number -1"),
        (NUMBER, float("nan"), "key must be a finite number, but is the number nan"),
        (NUMBER, "1", "key must be a finite number, but is the text '1'"),
        (SHARE, 0, "key must be a number above 0, at most 1, but is the number 0"),
        (SHARE, 1.5, "key must be a number above 0, at most 1, but is the number 1.5"),
    ],
)  # fmt: skip
def test_a_value_of_another_form_is_named(form: Form, value: Any, message: str) -> None:
    assert said_of(form, value) == message


@pytest.mark.parametrize(
    ("form", "value"),
    [(TEXT, "a"), (NAMES, "a"), (NAMES, ["a"]), (TABLE, {}), (TABLES, [{}]), (COUNT, 1), (WHOLE, 0), (SHARE, 1)],
)
def test_a_value_of_the_form_is_no_mistake(form: Form, value: Any) -> None:
    assert said_of(form, value) == ""


def test_a_misspelt_required_key_is_one_mistake() -> None:
    tree: dict[str, Any] = {"inptus": {}}
    mistakes = Mistakes()
    read_keys(Description.read(tree, "it"), (), tree, {"inputs": Key(TABLE, "the inputs", required=True)}, mistakes)

    assert message_of(mistakes) == "inptus is not a known key\n            did you mean 'inputs'? known: inputs"


@pytest.mark.parametrize("entry", [{"use": "digits"}, {"from": "image", "layers": [{}]}, {"at": "trunk"}])
def test_a_table_without_a_name_is_one_mistake(entry: dict[str, Any]) -> None:
    mistakes = Mistakes()

    assert list(read_tables(Description.read({"module": entry}, "it"), ("module",), entry, mistakes)) == []
    assert message_of(mistakes) == "module is a table without a name\n            write [module.a_name]"
