"""The value of a JSON text that may be damaged."""

from __future__ import annotations

import json
from typing import Any

from train_manager.telling.errors import CheckpointError


def json_of(content: bytes, label: str) -> Any:
    """Return the value of a JSON text.

    >>> json_of(b'{"steps": 3}', "state.json"), json_of(b"[1.5]", "state.json")
    ({'steps': 3}, [1.5])

    Args:
        content: the text, in UTF-8.
        label: the file's name in errors.

    Raises:
        CheckpointError: it is damaged.
    """
    try:
        return json.loads(content.decode())
    except (ValueError, RecursionError) as error:
        raise CheckpointError(f"{label} is damaged: {error!s:.200}", name=label) from None
