"""The keys of a table: the form of each value, and what it is for."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, NamedTuple

from train_manager.learner.description import Description, Mistakes, dotted
from train_manager.learner.places import Place
from train_manager.learner.showing import told
from train_manager.telling.errors import near


class Form(NamedTuple):
    """What the value of a key may be.

    Attributes:
        words: for messages: "must be ...".
        fits: whether a value has the form.
    """

    words: str
    fits: Callable[[Any], bool]


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _is_whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _are_names(value: Any) -> bool:
    return isinstance(value, str) or (
        isinstance(value, list) and value != [] and all(isinstance(n, str) for n in value)
    )


def _are_tables(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(table, Mapping) for table in value)


TEXT: Final = Form("a text that is not empty", lambda value: isinstance(value, str) and value != "")
NAMES: Final = Form("a name or a list of names", _are_names)
TABLE: Final = Form("a table", lambda value: isinstance(value, Mapping))
TABLES: Final = Form("a list of tables", _are_tables)
POINTS: Final = Form("a word, a table or a list of these", lambda value: isinstance(value, str | Mapping | list))
COUNT: Final = Form("a whole number from 1 on", lambda value: _is_whole(value) and value >= 1)
WHOLE: Final = Form("a whole number from 0 on", lambda value: _is_whole(value) and 0 <= value < 2**63)
NUMBER: Final = Form("a finite number", _is_number)
SHARE: Final = Form("a number above 0, at most 1", lambda value: _is_number(value) and 0 < value <= 1)


class Key(NamedTuple):
    """A key of a table.

    Attributes:
        form: what its value may be.
        meaning: what it is for, for the reference.
        required: whether the table must have it.
    """

    form: Form
    meaning: str
    required: bool = False


def read_keys(
    description: Description,
    path: Place,
    table: Mapping[str, Any],
    keys: Mapping[str, Key],
    mistakes: Mistakes,
    *,
    has_arguments: bool = False,
) -> dict[str, Any]:
    """Return the values of the keys that have the right form; the others are mistakes.

    Args:
        keys: those that the table may have.
        has_arguments: whether other keys are arguments of what ``use`` names.
    """
    found = {}
    for name, value in table.items():
        key = keys.get(name)
        if key is None:
            if not has_arguments:
                mistakes.add(description, (*path, name), "is not a known key", nearest_of=keys)
        elif key.form.fits(value):
            found[name] = value
        else:
            what = f"must be {key.form.words}, but is {told(value)}"
            mistakes.add(description, (*path, name), what, cure=_cure((*path, name), key.form, value))
    unknown = [] if has_arguments else [name for name in table if name not in keys]
    meant = {key for name in unknown for key in near(name, keys)[:1]}  # one mistake each, not two
    for name, key in keys.items():
        if key.required and name not in table and name not in meant:
            mistakes.add(description, path, f"lacks {name}: {key.meaning}")
    return found


def read_tables(description: Description, path: Place, given: Mapping[str, Any], mistakes: Mistakes) -> Iterable[Any]:
    """Yield the name and the table of each entry; an entry of another form is a mistake."""
    if any(isinstance(given.get(key), str) for key in ("use", "from", "at")):
        mistakes.add(description, path, "is a table without a name", cure=f"write [{dotted((*path, 'a_name'))}]")
        return
    for name, table in given.items():
        if isinstance(table, Mapping):
            yield name, table
        else:
            cure = f"write [{dotted((*path, name))}], in single brackets" if _are_tables(table) else ""
            mistakes.add(description, (*path, name), f"must be a table, but is {told(table)}", cure=cure)


def as_names(value: str | list[str]) -> list[str]:
    """Return a list of names, of one or several."""
    return [value] if isinstance(value, str) else list(value)


def _cure(path: Place, form: Form, value: Any) -> str:
    if form is not TABLES:
        return ""
    if isinstance(value, Mapping):
        return f"write [[{dotted(path)}]], or {path[-1]} = [{{ ... }}]"
    return 'write [{ use = "..." }]'
