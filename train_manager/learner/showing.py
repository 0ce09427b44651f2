"""Values of a file, as messages show them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from train_manager.telling.showing import short

_GIVEN: Final[Mapping[type, str]] = {
    int: "the number ",
    str: "the text ",
    list: "the list ",
    dict: "the table ",
}


def told(value: object) -> str:
    """Return a value of a description, for a message, with what it is.

    >>> told("0.1"), told(True), told([1, 8, 8])
    ("the text '0.1'", 'true', 'the list [1, 8, 8]')
    """
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float):
        return f"the number {value!r}"  # 10.0, where a whole number is asked for, must not look like one
    return _GIVEN.get(type(value), "") + short(value)
