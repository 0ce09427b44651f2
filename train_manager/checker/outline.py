"""What a method does with stages and fixtures, item by item; ``reader.py`` makes it from source.

The branches of a condition stand one after the other: a fixture that may be defined counts as defined, so that the
check reports no mistake that is none. Only a condition on the path of open stages decides between its branches.

    def fit(self, data):                             Opens fit (data)
        with self.staged("fit", {"data": data}):         Loops
            for batch in data:                               Calls step
                self.step(batch)                         Defines result
            self.fixtures["result"] = 1
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from types import FunctionType
from typing import final

from train_manager.checker.method_source import Names


@final
@dataclass(frozen=True, slots=True)
class Opens:
    """``with self.staged(...)``; the stage is None if its name is made at run time."""

    stage: str | None
    given: Names
    line: str
    body: Outline


@final
@dataclass(frozen=True, slots=True)
class Defines:
    """Fixtures that come alive, in the innermost stage or in a named enclosing one."""

    names: Names
    stage: str | None
    line: str


@final
@dataclass(frozen=True, slots=True)
class Touches:
    """Fixtures that the code of the stage reads or modifies; ``by`` is the method that is called with them by name."""

    names: Names
    modifies: bool
    by: FunctionType | None = None


@final
@dataclass(frozen=True, slots=True)
class Calls:
    """A call of another method of the same object; the body runs at the ``yield`` of that method."""

    function: FunctionType
    body: Outline = ()


@final
@dataclass(frozen=True, slots=True)
class Loops:
    """A body that runs again and again."""

    body: Outline


@final
@dataclass(frozen=True, slots=True)
class Where:
    """A body that runs only where a stage is open, or only where it is not: ``if "eval" in self.fixtures.path:``."""

    stage: str
    is_open: bool
    body: Outline


@final
@dataclass(frozen=True, slots=True)
class Tries:
    """A body whose errors are caught."""

    body: Outline


@final
@dataclass(frozen=True, slots=True)
class Refuses:
    """The ``raise`` of a branch that only the path of open stages leads to: nothing after it runs."""


@final
@dataclass(frozen=True, slots=True)
class Yields:
    """The point at which the body of a ``with`` or ``for`` over this method runs."""


@final
@dataclass(frozen=True, slots=True)
class Unknown:
    """Code that may open stages and define fixtures, and cannot be read; ``calls``: it may call any method."""

    what: str
    calls: bool = True


Item = Opens | Defines | Touches | Calls | Loops | Where | Tries | Refuses | Yields | Unknown
Outline = tuple[Item, ...]


def body_of(item: Item) -> Outline:
    """Return the items inside an item."""
    return item.body if isinstance(item, Opens | Calls | Loops | Where | Tries) else ()


def called_in(outline: Outline) -> Iterator[FunctionType]:
    """Yield the methods that an outline calls itself."""
    for item in outline:
        if isinstance(item, Calls):
            yield item.function
        yield from called_in(body_of(item))


def has_yield(outline: Outline) -> bool:
    """Whether an outline has a ``yield`` of its own."""
    return any(isinstance(item, Yields) or has_yield(body_of(item)) for item in outline)
