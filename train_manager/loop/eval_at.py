"""The argument that says when a training evaluates: at words such as "epoch", or whenever a schedule says so."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final, NamedTuple, final

from train_manager.core.schedule import Schedule
from train_manager.telling.errors import InputError

WORDS: Final = ("start", "epoch", "end")


@final
class EvalAtPoints(NamedTuple):
    """The points of the argument ``eval_at``, sorted by kind."""

    start: bool = False  # before the first batch of all
    epoch: bool = False  # after each epoch
    end: bool = False  # as each training call ends
    schedules: tuple[Schedule, ...] = ()  # after the batches that these say


EvalAtArgument = str | Schedule | Iterable[str | Schedule] | EvalAtPoints
"""The types of the argument ``eval_at``."""

NEVER: Final = EvalAtPoints()  # train_epoch passes it: a loop of the program's own evaluates by itself


def require_eval_at(value: Any) -> EvalAtPoints:
    """Return the points at which training evaluates.

    >>> require_eval_at(("start", "epoch"))
    EvalAtPoints(start=True, epoch=True, end=False, schedules=())

    Raises:
        InputError: it is neither a word, a schedule nor several of these.
    """
    if isinstance(value, EvalAtPoints):
        return value
    # A value of another type becomes the single entry, which the error below names.
    given = [value] if isinstance(value, str | Schedule) or not isinstance(value, Iterable) else list(value)
    for entry in given:
        if not (entry in WORDS if isinstance(entry, str) else isinstance(entry, Schedule)):
            raise InputError(
                f"eval_at must be of 'start', 'epoch', 'end' and schedules, but has {entry!r:.60}",
                name="eval_at",
                cure='give some of them: eval_at=("start", "epoch"), eval_at=every(250), or eval_at=() for never',
            )
    schedules = tuple(entry for entry in given if isinstance(entry, Schedule))
    return EvalAtPoints("start" in given, "epoch" in given, "end" in given, schedules)
