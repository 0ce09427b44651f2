"""Checks of the numbers and words that a caller passes, so that every refusal of the library has the same words.

Each ``require_...`` function returns the value, as a plain ``int``, ``float`` or ``str``. ``name`` is the subject of
the error's first line; ``cure`` is its second line, if an example says more than the first line.
"""

from __future__ import annotations

import math
import operator
from numbers import Real
from typing import Any

from train_manager.telling.errors import InputError, TrainManagerError


def require_count(
    value: int, name: str, *, at_least: int | None = None, cure: str = "", error: type[TrainManagerError] = InputError
) -> int:
    """Return a whole number that is large enough.

    >>> require_count(-3, "epochs", at_least=1)
    Traceback (most recent call last):
    train_manager.errors.InputError: epochs must be a whole number of at least 1, but is -3
    """
    try:
        whole = None if isinstance(value, bool) else operator.index(value)  # True is a mistake, although it is 1
    except TypeError:  # not a whole number; also a tensor or an array of several numbers
        whole = None
    if whole is None or (at_least is not None and whole < at_least):
        bound = "" if at_least is None else f" of at least {at_least}"
        raise _invalid(error, name, f"a whole number{bound}", value, cure)
    return whole


def require_number(
    value: float,
    name: str,
    *,
    above: float = -math.inf,
    at_least: float = -math.inf,
    below: float = math.inf,
    at_most: float = math.inf,
    cure: str = "",
    error: type[TrainManagerError] = InputError,
) -> float:
    """Return a finite number within its bounds.

    >>> require_number(2, "decay", at_least=0, below=1)
    Traceback (most recent call last):
    train_manager.errors.InputError: decay must be a number of at least 0 and below 1, but is 2
    """
    if isinstance(value, Real) and not isinstance(value, bool):
        number = float(value)
        if above < number < below and at_least <= number <= at_most:  # an infinite number is not below infinity
            return number
    bounds = [(" above", above), (" of at least", at_least), (" below", below), (" of at most", at_most)]
    texts = [f"{word} {bound:g}" for word, bound in bounds if math.isfinite(bound)]
    raise _invalid(error, name, "a number" + " and".join(texts), value, cure)


def require_one_of(value: str, name: str, allowed: tuple[str, ...], *, asked_by: str = "") -> str:
    """Return a word that is one of a few.

    >>> require_one_of("now", "at", ("step", "epoch"))
    Traceback (most recent call last):
    train_manager.errors.InputError: at must be 'step' or 'epoch', but is 'now'
    """
    if value not in allowed:
        *others, last = map(repr, allowed)
        raise InputError(
            f"{name} must be {', '.join(others)} or {last}, but is {value!r:.60}", name=name, asked_by=asked_by
        )
    return value


def is_number(value: object) -> bool:
    """Return whether a value is a number as files have them: an int or a float, and not True or False."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def _invalid(error: type[TrainManagerError], name: str, kind: str, value: Any, cure: str) -> TrainManagerError:
    return error(f"{name} must be {kind}, but is {value!r:.60}", name=name, cure=cure)
