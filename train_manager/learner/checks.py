"""Checks of a table: the keys that it has, and the types of its values."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, Final, TypeVar

from train_manager.learner.description import Description, Mistakes
from train_manager.learner.places import Place
from train_manager.telling.showing import short

Value = TypeVar("Value")

_NEEDED: Final[Mapping[type, str]] = {
    bool: "true or false",
    int: "a whole number",
    float: "a number",
    str: "a text",
    list: "a list",
    dict: "a table",
}
_GIVEN: Final[Mapping[type, str]] = {
    int: "the number ",
    float: "the number ",
    str: "the text ",
    list: "the list ",
    dict: "the table ",
}


def refuse_unknown(mistakes: Mistakes, description: Description, path: Place, known: Collection[str], of: str) -> None:
    """Add a mistake for each key of a table that is not known.

    Args:
        mistakes: where the mistakes are added.
        description: the description that has the table.
        path: the path of the table.
        known: the keys that the table may have.
        of: what the table describes, for the message: "a dataset".
    """
    for key in value_at(description, path):
        if key not in known:
            mistakes.add(description, (*path, key), f"is not a key of {of}", nearest_of=known)


def take(
    mistakes: Mistakes, description: Description, path: Place, kind: type[Value], *, needed: bool = False
) -> Value | None:
    """Return a value if it is there and of a type; None if it is not there; and None, with a mistake, for another type.

    A whole number is a number too, and is returned as a ``float`` if that is the type.

    Args:
        mistakes: where a mistake is added.
        description: the description that has the value.
        path: the path of the value; the table around it must be there.
        kind: the type.
        needed: a value that is not there is a mistake.
    """
    table = value_at(description, path[:-1])
    if path[-1] not in table:
        if needed:
            mistakes.add(description, path[:-1], f"needs the key {path[-1]!r}: {_NEEDED[kind]}")
        return None
    value = table[path[-1]]
    if type(value) is int and kind is float:
        value = float(value)
    if type(value) is kind:
        return value
    mistakes.add(description, path, f"must be {_NEEDED[kind]}, but is {told(value)}")
    return None


def told(value: object) -> str:
    """Return a value of a description, for a message, with what it is.

    >>> told("0.1"), told(True), told([1, 8, 8])
    ("the text '0.1'", 'true', 'the list [1, 8, 8]')
    """
    if isinstance(value, bool):
        return str(value).lower()
    return _GIVEN.get(type(value), "") + short(value)


def value_at(description: Description, path: Place) -> Any:
    """Return the value at a path, which must be there."""
    value: Any = description.tree
    for step in path:
        value = value[step]
    return value
