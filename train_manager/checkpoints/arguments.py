"""What the arguments of ``Checkpoints`` must be, checked as it is made: a mistake is told before the first step."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Any, Final

from train_manager.core.schedule import Schedule
from train_manager.telling.errors import InputError
from train_manager.validation import require_count

WORDS: Final = ("epoch", "end", "best")


def require_save_at(value: Any) -> tuple[str | Schedule, ...]:
    """Return the words and the schedule that say when to save.

    Raises:
        InputError: there is something else, or there are several schedules.
    """
    given = [value] if isinstance(value, str | Schedule) or not isinstance(value, Iterable) else list(value)
    cure = 'give some of them: save_at=("epoch", "end"), save_at="best", save_at=(every(500), "end")'
    for part in given:
        if not (part in WORDS if isinstance(part, str) else isinstance(part, Schedule)):
            what = f"save_at takes 'epoch', 'end', 'best' and one schedule, but has {part!r:.60}"
            if isinstance(part, int) and part > 0:
                cure = f"save_at=every({part}) saves after each {part} steps"
            raise InputError(what, name="save_at", asked_by="Checkpoints", cure=cure)
    if sum(isinstance(part, Schedule) for part in given) > 1:
        cure = "ask for the other checkpoints in a hook of your own: train_manager.save_soon()"
        raise InputError(
            "save_at takes one schedule, but has several", name="save_at", asked_by="Checkpoints", cure=cure
        )
    return tuple(given)


def require_keep(value: Any) -> int:
    """Return how many checkpoints to keep.

    Raises:
        InputError: it is not a number of at least 1.
    """
    try:
        return require_count(value, "keep", at_least=1)
    except InputError as error:
        raise InputError(error.what, name="keep", asked_by="Checkpoints", cure="keep=None keeps all") from None


def require_resume(value: Any, at: Any) -> bool | str:
    """Return the argument ``resume``.

    Raises:
        InputError: it is neither a bool nor "fresh", or ``at`` is given without it.
    """
    if value not in (True, False, "fresh"):
        what = f"resume must be True, False or 'fresh', but is {value!r:.60}"
        is_path = isinstance(value, os.PathLike) or (isinstance(value, str) and os.sep in value)
        cure = f"Checkpoints(resume=True, at={os.fspath(value)!r})" if is_path else "Checkpoints(resume=True) goes on"
        raise InputError(what, name="resume", asked_by="Checkpoints", cure=cure)
    if at != "last" and value is not True:
        what = f"at={at!r:.60} says where to go on, but resume is {value!r}"
        raise InputError(what, name="at", asked_by="Checkpoints", cure=f"Checkpoints(resume=True, at={at!r:.60})")
    return bool(value) if value != "fresh" else "fresh"


def several(value: str | Iterable[str]) -> tuple[str, ...]:
    """Return one name, or several, as a tuple."""
    return (value,) if isinstance(value, str) else tuple(value)
