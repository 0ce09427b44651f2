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
"""Code and instruction: two pointers, cheap to keep for each stage; the line is looked up only for a message."""


def site_of(frame: FrameType) -> Site:
    """Return the line that a frame is at now, without the frame, which would keep its variables alive."""
    return frame.f_code, frame.f_lasti


def line_of(site: Site) -> str:
    """Return a site as ``file:line``."""
    code, instruction = site
    # `co_positions` has an entry for each instruction, and an instruction takes two bytes.
    line = next(islice(code.co_positions(), instruction // 2, None))[0]
    return f"{display_path(code.co_filename)}:{line or code.co_firstlineno}"


def line_of_function(function: Callable[..., Any]) -> str:
    """Return ``file:line`` of a function's definition; empty if it has no Python source."""
    code = getattr(inspect.unwrap(function), "__code__", None)
    return f"{display_path(code.co_filename)}:{code.co_firstlineno}" if code else ""


def display_path(path: str) -> str:
    """Return a path relative to the working folder if it lies below it: short, and a terminal can open it."""
    try:
        relative = os.path.relpath(path)
    except ValueError:  # on Windows: the file is on another drive
        return path
    return path if relative.startswith("..") or path.startswith("<") else relative


def is_own_line(line: str) -> bool:
    """Return whether a ``file:line`` lies in this library."""
    return os.path.abspath(line).startswith(_LIBRARY)


def users_level() -> int:
    """Return the ``stacklevel`` with which a warning shows the user's line: the first one outside of this library."""
    frame: FrameType | None = sys._getframe(1)
    level = 1  # stands for the line that calls `warnings.warn`, as `users_level()` is its argument
    while frame is not None and _is_between(frame):
        frame, level = frame.f_back, level + 1
    return level


def users_place() -> tuple[str, int]:
    """Return the file and the line of the user's code, as ``warnings.warn_explicit`` takes them.

    A warning of another thread shows this line: there, the stack does not lead to the user's code.
    """
    frame = sys._getframe(users_level() - 1)
    return frame.f_code.co_filename, frame.f_lineno


def _is_between(frame: FrameType) -> bool:
    """Return whether a frame lies between a warning and the user's code."""
    is_generated = frame.f_code.co_filename.startswith("<hooks of ")  # a function that calls hooks
    return is_generated or str(frame.f_globals.get("__name__", "")).startswith(_BETWEEN)


_LIBRARY = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep
_BETWEEN = ("train_manager.", "contextlib")  # modules; contextlib calls the generators of context managers
