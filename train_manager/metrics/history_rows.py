"""What a row of the history is made of: its place in the training, and the figures that were measured there."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

PLACE: Final = ("epoch", "step", "phase", "partial", "seconds", "standalone", "set")
"""Where and how a row was measured; the rest of it is figures."""

Row = dict[str, Any]
"""One epoch, or one evaluation of one set: numbers by name."""


def figures_of(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return what was measured: a row without its place; nothing measured may be called like that.

    >>> figures_of({"epoch": 1, "step": 50, "set": "valid", "loss": 0.25})
    {'loss': 0.25}
    """
    return {name: value for name, value in row.items() if name not in PLACE}
