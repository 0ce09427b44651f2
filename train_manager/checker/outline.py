"""The outline of a method: the items of its source that concern stages and fixtures; ``reader.py`` makes it.

Methods stand in it by name: which function a name finds depends on the class of the object, and ``methods.py`` says it.
The branches of a condition stand one after the other: a fixture that may be defined counts as defined, so that the
check reports no false mistake.

    def fit(self, data):                             Opens fit (data)
        with self.staged("fit", {"data": data}):         Loops
            for batch in data:                               Calls step
                self.step(batch)                         Defines result
            self.fixtures["result"] = 1
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

Names = frozenset[str]


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


@final
@dataclass(frozen=True, slots=True)
class Unknown:
    """Code that may open stages and define fixtures, and cannot be read."""

    what: str  # for the list of unknown code
    may_call: bool = True  # it has the object, and so may call any method


@final
@dataclass(frozen=True, slots=True)
class HandsOn:
    """The object itself, or a property or bound method of it, is used without a call: other code may call it."""

    name: str  # of the method; empty for the object itself
    what: str  # for the list of unknown code


@final
@dataclass(frozen=True, slots=True)
class Later:
    """A function inside of the method: it runs where other code calls it."""

    body: Outline
    what: str  # for the list of unknown code


@final
@dataclass(frozen=True, slots=True)
class WithoutSource:
    """A method that cannot be read; it matters only if it names methods of its object, stages or fixtures."""

    names: Names  # in its code
    what: str  # for the list of unknown code


@final
@dataclass(frozen=True, slots=True)
class Calls:
    """A call of another method of the same object."""

    method: str
    is_super: bool = False  # as `super().method()`
    by_name: bool = False  # with the fixtures that its parameters name
    hands: Unknown | None = None  # it gets `fixtures`: unknown code, unless a parameter has this name too
    body: Outline | None = None  # of `with self.method():`, which runs at the `yield` of the method


@final
@dataclass(frozen=True, slots=True)
class Loops:
    """A body that runs again and again."""

    body: Outline


@final
@dataclass(frozen=True, slots=True)
class Where:
    """A body that runs only where a stage is open, or only where it is not; of a table alone."""

    stage: str
    is_open: bool  # whether the stage must be open, or must not
    body: Outline


@final
@dataclass(frozen=True, slots=True)
class Yields:
    """The point at which the body of a ``with`` over this method runs; of a table alone."""


Item = Opens | Defines | Touches | Unknown | HandsOn | Later | WithoutSource | Calls | Loops | Where | Yields
Outline = tuple[Item, ...]


def body_of(item: Item) -> Outline:
    """Return the items inside an item."""
    # A check asks 1,200 times; `Opens | Later` would build a new type object each time.
    return (item.body or ()) if isinstance(item, (Opens, Later, Calls, Loops, Where)) else ()
