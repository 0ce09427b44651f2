"""JSON that is read strictly: no repeated key, no NaN, no endless nesting, and an error that names the file."""

from __future__ import annotations

import json
from typing import Any

from train_manager.telling.errors import CheckpointError


def strict_json(content: bytes, label: str) -> Any:
    """Return the value of a JSON text.

    >>> strict_json(b'{"a": 1, "a": 2}', "state.json")
    Traceback (most recent call last):
    train_manager.CheckpointError: state.json is damaged: the key 'a' is there twice

    Args:
        content: the text, in UTF-8.
        label: the file's name in errors.
    """
    try:
        return json.loads(content.decode(), object_pairs_hook=_object, parse_constant=_constant)
    except RecursionError:
        raise CheckpointError(f"{label} is damaged: it is nested too deep", name=label) from None
    except ValueError as error:
        raise CheckpointError(f"{label} is damaged: {error!s:.200}", name=label) from None


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    # json.loads would keep the last of two values without a word, where another program may read the first.
    found = dict(pairs)
    if len(found) < len(pairs):
        seen: set[str] = set()
        twice = next(key for key, _ in pairs if key in seen or seen.add(key))  # type: ignore[func-returns-value]
        raise ValueError(f"the key {twice!r:.60} is there twice")
    return found


def _constant(name: str) -> None:  # json.loads calls this for NaN, Infinity and -Infinity
    raise ValueError(f"{name} is not JSON")
