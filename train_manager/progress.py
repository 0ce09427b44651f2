"""How far a training call has come; what schedules plan by."""

from __future__ import annotations

from typing import NamedTuple


class Progress(NamedTuple):
    """How far a training call is.

    >>> Progress(run=1, done=30, total=30, is_last=True).is_last
    True

    Attributes:
        run: another number in each call.
        done: steps of this call, the one that is alive included: the same in its pre and its post hooks.
        total: steps that the call will do; None while nobody can know.
        is_last: no step will follow, as far as is known; also where somebody has called ``stop``.
    """

    run: int
    done: int
    total: int | None
    is_last: bool
