"""What extensions require of numbers they are given: each function returns it, or says what is wrong."""

from __future__ import annotations

import math
from numbers import Real

from train_manager.errors import InputError


def number(
    value: float,
    name: str,
    *,
    above: float = -math.inf,
    at_least: float = -math.inf,
    below: float = math.inf,
    at_most: float = math.inf,
) -> float:
    """A finite number within its bounds.

    >>> number(1, "decay", at_least=0, at_most=1)
    1.0
    """
    if isinstance(value, Real) and not isinstance(value, bool):
        found = float(value)
        if above < found < below and at_least <= found <= at_most:
            return found
    raise InputError(
        f"{name} is {value!r:.60}", name=name, cure=f"give a number{_bounds(above, at_least, below, at_most)}"
    )


def _bounds(above: float, at_least: float, below: float, at_most: float) -> str:
    words = {"above": above, "of at least": at_least, "below": below, "of at most": at_most}
    said = [f"{word} {bound:g}" for word, bound in words.items() if math.isfinite(bound)]
    return f" {' and '.join(said)}" if said else ""
