"""Where something stands in the source, as ``file:line``, for error messages."""

from __future__ import annotations

import ast
import inspect
import os
import textwrap
from collections.abc import Callable, Iterator
from functools import cache
from itertools import islice
from types import CodeType, FrameType
from typing import Any

Site = tuple[CodeType, int]
"""Code and instruction: two pointers to keep per stage; the line is looked up only for a message."""


def site_of(frame: FrameType) -> Site:
    """Where this frame is now, without keeping the frame, which would keep its variables alive."""
    return frame.f_code, frame.f_lasti


def line_of(site: Site) -> str:
    """``file:line`` of a site."""
    code, instruction = site
    line = next(islice(code.co_positions(), instruction // 2, None))[0]
    return f"{shown_path(code.co_filename)}:{line or code.co_firstlineno}"


def line_of_function(function: Callable[..., Any]) -> str:
    """``file:line`` of a function's definition; empty for what has no Python source."""
    code = getattr(inspect.unwrap(function), "__code__", None)
    return f"{shown_path(code.co_filename)}:{code.co_firstlineno}" if code else ""


def stages_opened_by(cls: type) -> frozenset[str]:
    """The stage names that stand literally in a class's methods, inherited ones included: ``staged("name")``."""
    functions = [value for base in cls.__mro__ for value in vars(base).values() if inspect.isfunction(value)]
    return frozenset(stage for function in functions for stage in _stages_in(inspect.unwrap(function).__code__))


@cache
def _stages_in(code: CodeType) -> tuple[str, ...]:  # not the function: the cache would keep what it closes over
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(code)))
    except (OSError, TypeError, SyntaxError):  # no source: made by exec, or written in C
        return ()
    return tuple(_staged_literals(tree))


def _staged_literals(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call) or not node.args:
            continue
        called = getattr(node.func, "attr", None) or getattr(node.func, "id", None)
        first = node.args[0]
        if called == "staged" and isinstance(first, ast.Constant) and isinstance(first.value, str):
            yield first.value


def shown_path(path: str) -> str:
    """Relative to the working folder where it lies below it: short, and a terminal can open it."""
    try:
        relative = os.path.relpath(path)
    except ValueError:  # another drive
        return path
    return path if relative.startswith("..") or path.startswith("<") else relative
