"""A line of the source as ``file:line``, for error messages."""

from __future__ import annotations

import inspect
import os
import sys
from collections.abc import Callable
from itertools import islice
from types import CodeType, FrameType
from typing import Any

Site = tuple[CodeType, int]
"""Code and instruction: two pointers to keep per stage; the line is looked up only for a message."""


def site_of(frame: FrameType) -> Site:
    """Return the line that a frame is at now, without the frame, which would keep its variables alive."""
    return frame.f_code, frame.f_lasti


def line_of(site: Site) -> str:
    """Return a site as ``file:line``."""
    code, instruction = site
    line = next(islice(code.co_positions(), instruction // 2, None))[0]
    return f"{shown_path(code.co_filename)}:{line or code.co_firstlineno}"


def line_of_function(function: Callable[..., Any]) -> str:
    """Return ``file:line`` of a function's definition; empty if it has no Python source."""
    code = getattr(inspect.unwrap(function), "__code__", None)
    return f"{shown_path(code.co_filename)}:{code.co_firstlineno}" if code else ""


def shown_path(path: str) -> str:
    """Return a path relative to the working folder if it lies below it: short, and a terminal can open it."""
    try:
        relative = os.path.relpath(path)
    except ValueError:  # another drive
        return path
    return path if relative.startswith("..") or path.startswith("<") else relative


def users_level() -> int:
    """Return the ``stacklevel`` of a warning that shows the user's line, which is the first one outside of here."""
    frame: FrameType | None = sys._getframe(1)
    level = 1
    while frame is not None and _is_between(frame):
        frame, level = frame.f_back, level + 1
    return level


def users_place() -> tuple[str, int]:
    """Return the file and the line of the user's, for a warning of another thread; as ``warn_explicit`` takes them."""
    frame = sys._getframe(users_level() - 1)
    return frame.f_code.co_filename, frame.f_lineno


def _is_between(frame: FrameType) -> bool:
    is_generated = frame.f_code.co_filename.startswith("<hooks of ")  # a function that calls hooks
    return is_generated or str(frame.f_globals.get("__name__", "")).startswith(_BETWEEN)


_BETWEEN = ("train_manager.", "contextlib")
