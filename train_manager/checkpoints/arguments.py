"""The checks of the arguments of ``Checkpoints``, made in its constructor: a mistake is reported before step one."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

from train_manager.core.schedule import Schedule
from train_manager.telling.errors import InputError

WORDS: Final = ("epoch", "end", "best")


def require_save_at(value: Any) -> tuple[str | Schedule, ...]:
    """Return the words and the schedule that say when to save.

    Raises:
        InputError: an entry is neither such a word nor a schedule, or there are several schedules.
    """
    # A str is iterable too, so a word or a schedule alone is separated from a list of them first.
    given = [value] if isinstance(value, str | Schedule) or not isinstance(value, Iterable) else list(value)
    cure = 'give some of them: save_at=("epoch", "end"), save_at="best", save_at=(every(500), "end")'
    for entry in given:
        if not (entry in WORDS if isinstance(entry, str) else isinstance(entry, Schedule)):
            what = f"save_at takes 'epoch', 'end', 'best' and one schedule, but has {entry!r:.60}"
            # save_at=500 is the likeliest mistake: its number is put into the cure.
            if isinstance(entry, int) and entry > 0:
                cure = f"save_at=every({entry}) saves after each {entry} steps"
            raise InputError(what, name="save_at", asked_by="Checkpoints", cure=cure)
    if sum(isinstance(entry, Schedule) for entry in given) > 1:
        cure = "ask for the other checkpoints in a hook of your own: train_manager.save_soon()"
        raise InputError(
            "save_at takes one schedule, but has several", name="save_at", asked_by="Checkpoints", cure=cure
        )
    return tuple(given)


def require_resume(value: Any, at: Any) -> bool | str:
    """Return the argument ``resume``.

    Raises:
        InputError: it is neither a bool nor "fresh", or ``at`` is given without it.
    """
    if value not in (True, False, "fresh"):
        what = f"resume must be True, False or 'fresh', but is {value!r:.60}"
        # resume="runs/1" is a frequent mistake: a path belongs into `at`, so the cure moves it there.
        is_path = isinstance(value, os.PathLike) or (isinstance(value, str) and os.sep in value)
        cure = f"Checkpoints(resume=True, at={os.fspath(value)!r})" if is_path else "Checkpoints(resume=True) resumes"
        raise InputError(what, name="resume", asked_by="Checkpoints", cure=cure)
    # Without this check, a user who gives `at` alone would train from step 0 and believe that the run resumed.
    if at != "last" and value is not True:
        what = f"at={at!r:.60} says where to resume, but resume is {value!r}"
        raise InputError(what, name="at", asked_by="Checkpoints", cure=f"Checkpoints(resume=True, at={at!r:.60})")
    return bool(value) if value != "fresh" else "fresh"


def require_mirror(mirror: str | os.PathLike[str] | None) -> Path | None:
    """Return the argument ``mirror`` of Checkpoints as a path.

    Raises:
        InputError: it is not a path.
    """
    if mirror is not None and (not isinstance(mirror, str | os.PathLike) or not os.fspath(mirror)):
        cure = 'give a folder, such as "/backup/digits"'
        raise InputError(
            f"mirror must be a folder, not {mirror!r:.60}", name="mirror", asked_by="Checkpoints", cure=cure
        )
    return None if mirror is None else Path(mirror).expanduser()
