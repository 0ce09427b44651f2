"""The argument that says when a training evaluates: at words such as "epoch", or whenever a schedule says so."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final, NamedTuple, final

from train_manager.core.schedule import Schedule
from train_manager.telling.errors import InputError

WORDS: Final = ("start", "epoch", "end")


@final
class EvalAtPoints(NamedTuple):
    """The argument ``eval_at``, sorted out.

    Attributes:
        start: before the first batch of all.
        epoch: after each epoch.
        end: as each training call ends.
        schedules: after the batches that they say.
    """

    start: bool = False
    epoch: bool = False
    end: bool = False
    schedules: tuple[Schedule, ...] = ()


EvalAtArgument = str | Schedule | Iterable[str | Schedule] | EvalAtPoints
"""What ``eval_at`` may be given."""

NEVER: Final = EvalAtPoints()


def require_eval_at(value: Any) -> EvalAtPoints:
    """Return the points at which training evaluates.

    >>> require_eval_at(("start", "epoch"))
    EvalAtPoints(start=True, epoch=True, end=False, schedules=())

    Raises:
        InputError: it is neither a word, a schedule nor several of these.
    """
    if isinstance(value, EvalAtPoints):
        return value
    given = [value] if isinstance(value, str | Schedule) or not isinstance(value, Iterable) else list(value)
    for part in given:
        if not (part in WORDS if isinstance(part, str) else isinstance(part, Schedule)):
            raise InputError(
                f"eval_at must be of 'start', 'epoch', 'end' and schedules, but has {part!r:.60}",
                name="eval_at",
                cure='give some of them: eval_at=("start", "epoch"), eval_at=every(250), or eval_at=() for never',
            )
    schedules = tuple(part for part in given if isinstance(part, Schedule))
    return EvalAtPoints("start" in given, "epoch" in given, "end" in given, schedules)
