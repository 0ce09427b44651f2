"""What an entry of ``run.json`` must have at each place, so that a file written by hand is refused in words."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any, Final

_ID: Final = re.compile(r"[\w-]+", re.ASCII)


def wrong_in(entry: Mapping[str, Any]) -> str | None:
    """Return the first value of a wrong type, in words; None if there is none. What is absent or null is not wrong.

    >>> wrong_in({"id": "3f2a", "progress": {"steps": "many"}})
    "'many' at progress.steps, where a whole number belongs"
    """
    for place, (word, fits) in _SHAPE.items():
        value: Any = entry
        for name in place.split("."):
            value = None if value is None else value.get(name)
        if value is not None and not fits(value):
            return f"{value!r:.60} at {place}, where {word} belongs"
    return None


def _is(*kinds: type) -> Callable[[Any], bool]:
    return lambda value: isinstance(value, kinds) and (bool in kinds or not isinstance(value, bool))


def _is_time(value: Any) -> bool:
    try:
        return datetime.fromisoformat(value).tzinfo is not None
    except (TypeError, ValueError):
        return False


def _are_texts(value: Any) -> bool:
    texts = [*value, *value.values()] if isinstance(value, dict) else value
    return isinstance(value, list | dict) and all(isinstance(text, str) for text in texts)


_TEXT: Final = "a text", _is(str)
_TEXTS: Final = "a list of texts", lambda value: isinstance(value, list) and _are_texts(value)
_OBJECT: Final = "an object", _is(dict)
_OBJECT_OF_TEXTS: Final = "an object of texts", lambda value: isinstance(value, dict) and _are_texts(value)
_NUMBER: Final = "a whole number", _is(int)
_TIME: Final = "a time with its zone", _is_time
_SHAPE: Final[Mapping[str, tuple[str, Callable[[Any], bool]]]] = {  # each place after the one that holds it
    "id": ("a name", lambda value: isinstance(value, str) and _ID.fullmatch(value) is not None),
    **dict.fromkeys(("began", "ended"), _TIME),
    **dict.fromkeys(("process", "error", "goes_on_from", "calls", "command", "environment", "parameters"), _OBJECT),
    **dict.fromkeys(("made", "data", "progress"), _OBJECT),
    "findings": ("a list", _is(list)),
    **dict.fromkeys(("manager", "goes_on_from.step", "progress.steps", "progress.epochs"), _NUMBER),
    **dict.fromkeys(("reason", "goes_on_from.run", "command.kind", "command.folder", "command.interpreter"), _TEXT),
    **dict.fromkeys(("command.arguments", "command.search_path", "problems"), _TEXTS),
    **dict.fromkeys(("environment.variables", "environment.editable"), _OBJECT_OF_TEXTS),
    **dict.fromkeys(("environment.threads", "environment.devices", "environment.packages", "data.eval_data"), _OBJECT),
}
