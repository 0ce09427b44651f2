"""Tracebacks that show the user's frames: the frames of this library are taken out as an error leaves it.

A training is some twenty calls deep, and none of these frames says more about a failed hook than the note on the error.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from types import TracebackType
from typing import Final, final

from train_manager.telling.errors import TrainManagerError

FULL_TRACEBACK = "TRAIN_MANAGER_FULL_TRACEBACK"
"""An environment variable: if it is set to anything but 0, no frame is taken out."""

SAYS_ALL: Final = (TrainManagerError, BaseExceptionGroup, KeyboardInterrupt)
"""Errors whose last frame says nothing if it is a frame of this library."""


def hide_own_frames(error: BaseException) -> None:
    """Take the frames of this library out of the traceback of an error, and of the errors that led to it.

    The first frame stays, and so do the frames of other code. The last frame stays too, unless the error is of this
    library, whose message says what happened there, or an interrupt, which came from outside. Of an interrupt that
    ends the program, the first frame is hidden too.
    """
    if os.environ.get(FULL_TRACEBACK, "0") == "0":
        _hide_in(error)
        if isinstance(error, KeyboardInterrupt) and not isinstance(sys.excepthook, _UsersLine):
            sys.excepthook = _UsersLine(sys.excepthook)


@final
class _UsersLine:
    """Shows the error that ends the program, or a command at a prompt, as before, but an interrupt without own frames.

    Only here the traceback is whole: an error on its way out passes frames of this library that come before the first.
    """

    def __init__(self, before: Callable[..., object]) -> None:
        self._before = before

    def __call__(self, kind: type[BaseException], error: BaseException, traceback: TracebackType | None) -> None:
        sys.excepthook = self._before
        if isinstance(error, KeyboardInterrupt):
            _link(traceback, keeps_last=False)
        self._before(kind, error, traceback)


def _hide_in(error: BaseException) -> None:
    """Hide frames in an error, its cause, its context and, in a group, its members."""
    ahead: list[BaseException | None] = [error]
    known: set[int] = set()  # by id: contexts may lead in a circle
    while ahead:  # no recursion: a chain of errors may be longer than Python's stack
        found = ahead.pop()
        if found is not None and id(found) not in known:
            known.add(id(found))
            _link(found.__traceback__, keeps_last=not isinstance(found, SAYS_ALL))
            ahead += [found.__cause__, found.__context__]
            ahead += found.exceptions if isinstance(found, BaseExceptionGroup) else ()


def _link(traceback: TracebackType | None, *, keeps_last: bool) -> None:
    """Let each entry of a traceback point to the next one that is shown."""
    # Hidden entries are linked too: the error may still pass frames of this library, which put entries before these.
    entries = []
    while traceback is not None:
        entries.append(traceback)
        traceback = traceback.tb_next
    shown = entries.pop() if entries and keeps_last else None
    leads_to_own = shown is not None and _is_own(shown)  # a frame of contextlib that calls this library is hidden too
    for entry in reversed(entries):
        entry.tb_next = shown
        leads_to_own = _is_own(entry) or (leads_to_own and _name_of(entry) == "contextlib")
        if not leads_to_own:
            shown = entry


def _is_own(entry: TracebackType) -> bool:
    """Return whether a frame runs code of this library; the functions that call several hooks are generated."""
    return _name_of(entry).partition(".")[0] == "train_manager" or entry.tb_frame.f_code.co_filename.startswith(
        "<hooks of "
    )


def _name_of(entry: TracebackType) -> str:
    """Return the name of the module that a frame runs code of."""
    return str(entry.tb_frame.f_globals.get("__name__", ""))
