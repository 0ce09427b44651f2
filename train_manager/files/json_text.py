"""The value of a JSON text that may be damaged, and plain data as such a text for programs."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
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


def text_of(data: Any) -> str:
    """Return plain data as a JSON text; nan and infinities, which JSON does not have, as in ``json_values``.

    >>> print(text_of({"at": (3,), "loss": math.nan}))
    {
     "at": [
      3
     ],
     "loss": {
      "$float": "nan"
     }
    }
    """
    return json.dumps(_finite(data), indent=1, allow_nan=False)


def _finite(data: Any) -> Any:
    if isinstance(data, float) and not math.isfinite(data):
        return {"$float": repr(float(data))}  # numpy's float64 is a float with another repr
    if isinstance(data, Mapping):
        return {key: _finite(value) for key, value in data.items()}
    return [*map(_finite, data)] if isinstance(data, (list, tuple)) else data
