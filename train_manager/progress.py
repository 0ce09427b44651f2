"""How far a call of ``train`` and its kin has come."""

from __future__ import annotations

from itertools import count
from typing import NamedTuple


class Progress(NamedTuple):
    """Where training stands, as schedules ask for it.

    Attributes:
        run: changes with each training call, and is never that of another manager.
        done: steps of this call, the one that is alive included: the same in its pre and post hooks.
        total: steps that this call will do; None while that is unknown.
        is_last: no further step of this call will follow, as far as is known.
    """

    run: int
    done: int
    total: int | None
    is_last: bool


_numbers = count(1)


def new_call() -> int:
    """A number for a training call."""
    return next(_numbers)
