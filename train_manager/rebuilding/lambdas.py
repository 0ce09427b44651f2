"""A lambda in words: its source, and the numbers of the program that it uses."""

from __future__ import annotations

import inspect
import linecache
from collections.abc import Iterator
from contextlib import suppress
from types import CodeType, FunctionType

from train_manager.files.secrets import redacted
from train_manager.telling.source_locations import line_of_function


def lambda_text(function: FunctionType) -> str:
    """Return a lambda as it is written, with the numbers that it takes from around it.

    Two runs of the same source differ in these numbers. What looks like a secret is left out. Without its source, as
    after ``exec``, the text has the place of the lambda.
    """
    body = " ".join(_body_lines(function.__code__)).strip()
    if not body:
        return f"lambda at {line_of_function(function)}"
    names = ", ".join(inspect.signature(function).parameters)
    numbers = ", ".join(f"{name}={value!r}" for name, value in _numbers(function))
    return redacted(f"lambda{' ' * bool(names)}{names}: {body}{f' with {numbers}' * bool(numbers)}")


def _body_lines(code: CodeType) -> Iterator[str]:
    """Yield the lines of the body, without what stands around it; none if there is no source."""
    # The instructions know the columns; the first and the last of a function may have none.
    places = [(line, end_line, start, end) for line, end_line, start, end in code.co_positions() if start != end]
    known = [(line, end_line or 0, start or 0, end or 0) for line, end_line, start, end in places if line and end]
    if not known:
        return
    (first, begins), (last, ends) = min(one[::2] for one in known), max(one[1::2] for one in known)
    for number in range(first, last + 1):
        # Columns are counted in bytes.
        text = linecache.getline(code.co_filename, number).encode()
        part = text[begins if number == first else 0 : ends if number == last else None]
        yield part.decode(errors="replace").strip()


def _numbers(function: FunctionType) -> Iterator[tuple[str, object]]:
    """Yield names and values of the numbers around a function that it uses."""
    with suppress(ValueError):  # a variable that is not assigned yet
        around = inspect.getclosurevars(function)
        yield from (
            (name, value)
            for name, value in {**around.globals, **around.nonlocals}.items()
            if type(value) in (bool, int, float)
        )
