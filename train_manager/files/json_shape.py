"""The type that each place of a JSON file must have: a file written by hand, or damaged, is refused in words."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, Final, NamedTuple


class Kind(NamedTuple):
    """A type of value that a place of a JSON file must have."""

    word: str  # the name of the type in an error
    fits: Callable[[Any], bool]  # returns whether a value is of this type
    may_be_absent: bool = True  # whether a whole file may lack the place, or have null there

    @property
    def required(self) -> Kind:
        """The same type, at a place that no whole file may lack."""
        return self._replace(may_be_absent=False)


Shape = Mapping[str, Kind]
"""Kinds by their places: ``command.arguments``, ``repositories[].path``."""


def wrong_in(value: Any, shape: Shape, *, is_whole: bool = False) -> str | None:
    """Return the first value that does not fit, in words; None if there is none.

    >>> wrong_in({"progress": {"steps": "many"}}, {"progress.steps": NUMBER})
    "'many' at progress.steps, where a whole number belongs"

    Args:
        value: the content of the file.
        shape: the types by their places.
        is_whole: whether the places that are required must be there.
    """
    for place, kind in shape.items():
        # null is written for an absent value, so None stands for both.
        for label, found in _values(value, place.split("."), ""):
            if (is_whole and not kind.may_be_absent) if found is None else not kind.fits(found):
                return f"{'nothing' if found is None else f'{found!r:.60}'} at {label}, where {kind.word} belongs"
    return None


def _values(value: Any, parts: Sequence[str], label: str) -> Iterator[tuple[str, Any]]:
    if not parts:
        yield label, value
        return
    name, rest = parts[0].removesuffix("[]"), parts[1:]
    inner = value.get(name) if isinstance(value, dict) else None
    label = f"{label}.{name}" if label else name
    # A place without [] holds one value; with [] the rest of the place applies to each item of the list.
    if not parts[0].endswith("[]"):
        yield from _values(inner, rest, label)
    for number, one in enumerate(inner if isinstance(inner, list) and parts[0].endswith("[]") else ()):
        yield from _values(one, rest, f"{label}[{number}]")


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _is_name(value: Any) -> bool:
    """Return whether a value may be the name of a file, a variable or an argument."""
    # A NUL byte, or a lone surrogate, which cannot be encoded, would raise only when the name is used.
    if not isinstance(value, str) or "\0" in value:
        return False
    try:
        os.fsencode(value)
    except UnicodeEncodeError:
        return False
    return True


def _is_time(value: Any) -> bool:
    try:
        # A time without its zone would mean another moment on another machine.
        return datetime.fromisoformat(value).tzinfo is not None
    except (TypeError, ValueError):
        return False


def _are(fits: Callable[[Any], bool], kind: type) -> Callable[[Any], bool]:
    def are(value: Any) -> bool:
        # Iteration over a dict gives its keys; its values must fit too.
        values = [*value.values()] if isinstance(value, dict) else []
        return isinstance(value, kind) and all(map(fits, [*value, *values]))  # type: ignore[misc]

    return are


TEXT: Final = Kind("a text", _is_text)
NAME: Final = Kind("a name", _is_name)
NUMBER: Final = Kind("a whole number", lambda value: type(value) is int)
TIME: Final = Kind("a time with its zone", _is_time)
LIST: Final = Kind("a list", lambda value: isinstance(value, list))
OBJECT: Final = Kind("an object", lambda value: isinstance(value, dict))
TEXTS: Final = Kind("a list of texts", _are(_is_text, list))
NAMES: Final = Kind("a list of names", _are(_is_name, list))
OBJECT_OF_TEXTS: Final = Kind("an object of texts", _are(_is_text, dict))
OBJECT_OF_NAMES: Final = Kind("an object of names", _are(_is_name, dict))
