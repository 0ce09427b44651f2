"""The outline of a method: the items of its source that concern stages and fixtures; ``reader.py`` makes it.

The branches of a condition stand one after the other: a fixture that may be defined counts as defined, so that the
check reports no false mistake. Only a condition on the path of open stages decides between its branches.

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
    given: Names  # the fixtures that it is opened with
    line: str  # as `file:line`
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
    """Fixtures that the code of the stage reads or modifies."""

    names: Names
    modifies: bool
    by: FunctionType | None = None  # the method whose parameters name the fixtures, if it is called by name


@final
@dataclass(frozen=True, slots=True)
class Calls:
    """A call of another method of the same object; the body runs at the ``yield`` of that method."""

    function: FunctionType
    body: Outline = ()  # of a `with` or a `for` over a generator method; empty for a plain call


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
    is_open: bool  # whether the stage must be open, or must not
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
    """Code that may open stages and define fixtures, and cannot be read."""

    what: str  # for the list of unknown code
    may_call: bool = True  # it has the object, and so may call any method


Item = Opens | Defines | Touches | Calls | Loops | Where | Tries | Refuses | Yields | Unknown
Outline = tuple[Item, ...]


def body_of(item: Item) -> Outline:
    """Return the items inside an item."""
    return item.body if isinstance(item, Opens | Calls | Loops | Where | Tries) else ()


def find_called(outline: Outline) -> Iterator[FunctionType]:
    """Yield the methods that an outline calls directly."""
    for item in outline:
        if isinstance(item, Calls):
            yield item.function
        yield from find_called(body_of(item))


def has_yield(outline: Outline) -> bool:
    """Return whether an outline has a ``yield`` of its own, and not only in a method that it calls."""
    return any(isinstance(item, Yields) or has_yield(body_of(item)) for item in outline)
