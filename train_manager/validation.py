"""What extensions require of numbers they are given: each function returns it, or says what is wrong."""

from __future__ import annotations

import math
import operator
from numbers import Real

from train_manager.core.errors import InputError


def require_count(value: int, name: str, *, at_least: int) -> int:
    """A whole number that is large enough."""
    is_whole = hasattr(value, "__index__") and not isinstance(value, bool)
    if not is_whole or operator.index(value) < at_least:
        raise InputError(f"{name} is {value!r}", name=name, cure=f"give a whole number, {at_least} or more")
    return operator.index(value)


def require_one_of(value: str, name: str, allowed: tuple[str, ...]) -> str:
    """One of a few words."""
    if value not in allowed:
        raise InputError(f"{name} is {value!r}", name=name, cure=f"give one of {', '.join(map(repr, allowed))}")
    return value


def require_number(
    value: float,
    name: str,
    *,
    above: float = -math.inf,
    at_least: float = -math.inf,
    below: float = math.inf,
    at_most: float = math.inf,
) -> float:
    """A finite number within its bounds.

    >>> require_number(1, "decay", at_least=0, at_most=1)
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
