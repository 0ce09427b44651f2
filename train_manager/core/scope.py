"""A cell: the place of one fixture, made when its name is first met, and kept. Its value is nowhere else.

    cells["loss"]   value 0.31, owner <stage train_step_batch>      alive
    cells["norm"]   no value, owner <stage run>, promise <...>      alive, to be computed at the first look-up
    cells["batch"]  no value, owner None, stage "train_step_batch"  dead; its stage has ended

Whoever has a cell reads with ``cell.value``, without looking up a name; where there is none, that is an error.
"""

from __future__ import annotations

from types import CodeType
from typing import Any, NamedTuple, Protocol, final

from train_manager.core.locations import Site


class Content(NamedTuple):
    """All that is in a cell, to be put back."""

    owner: Any
    definer: Any
    stage: str | None
    promise: Any
    next: Cell | None
    values: tuple[Any, ...]


@final
class Cell:
    """The place of one fixture.

    Attributes:
        name: the fixture's.
        value: only there while the fixture is alive, and computed; else reading it raises an AttributeError.
        owner: the scope that it dies with; None where it is not alive.
        definer: who has defined it; None: the line that opened the stage.
        stage: the name of its owner, or of its last one.
        promise: computes the value; None where it is there, or the fixture dead.
        next: another cell of the same owner, one that is older.
        is_pinned: somebody keeps it, so that the name must not get another one.
    """

    __slots__ = ("definer", "is_pinned", "name", "next", "owner", "promise", "stage", "value")

    value: Any

    def __init__(self, name: str) -> None:
        self.name = name
        self.owner: Any = None
        self.definer: Any = None
        self.stage: str | None = None
        self.promise: Any = None
        self.next: Cell | None = None
        self.is_pinned = False

    def empty(self) -> None:
        """The fixture dies."""
        self.owner = self.promise = None
        if hasattr(self, "value"):
            del self.value

    def content(self) -> Content:
        """What is in it now."""
        values = (self.value,) if hasattr(self, "value") else ()
        return Content(self.owner, self.definer, self.stage, self.promise, self.next, values)

    def restore(self, content: Content) -> None:
        """Put that back."""
        self.owner, self.definer, self.stage, self.promise, self.next, values = content
        for value in values:
            self.value = value


class Caller(Protocol):
    """A hook or a provider: what fixtures know of who is being called."""

    @property
    def label(self) -> str: ...
    @property
    def whose(self) -> str: ...
    @property
    def written(self) -> tuple[str, ...]: ...
    @property
    def call(self) -> Any: ...


Definer = Site | Caller
"""Who defined a fixture: a line of code, or a hook or provider by its return value."""


SPARE, TAKEN, NEW, OPEN, OPEN_WITH_MORE, CLOSED = range(6)
"""The life of a scope. Most end with their fixtures; one with more hides, promises, suspends or keeps something.

One that has ended and that nobody can see is spare, and is taken to open again; then no other of its name is open.
"""


class Hidden(NamedTuple):
    """What the outer stage of a recursion owns, put aside until the inner one ends."""

    first: Cell | None
    contents: tuple[tuple[Cell, Content], ...]

    def content_of(self, name: str) -> Content | None:
        """What is in the cell of this name; None where it is not among them."""
        return {cell.name: content for cell, content in self.contents}.get(name)


class Scope:
    """What one open stage owns, and the scope around it.

    During one training batch the scopes of a TrainManager form this stack, innermost at the bottom::

        run                 owns epoch_num, step_num, ...
        └─ train
           └─ train_step_epoch
              └─ train_step_batch       owns batch, prediction, loss, ...
                 └─ train_backward      <- innermost: `fixtures["x"] = 1` would be its own

    Attributes:
        name: the stage's name.
        path: names of the open stages, outermost first, this one last.
    """

    # Nothing else can be kept here, and no weak reference: the object may serve for the next stage of its name.
    __slots__ = (
        "code",
        "first",
        "hidden",
        "instruction",
        "name",
        "parent",
        "phase",
        "same_name",
        "suspended",
        "suspends",
    )

    same_name: Scope | None
    """The enclosing stage of this name, in a recursion."""
    hidden: Hidden | None
    """What `same_name` owns, put aside until this one ends."""
    suspended: tuple[tuple[Any, Any], ...]
    """Hooks and providers that go on when the stage ends, the last one first."""

    name: str
    code: CodeType
    """Of the method that opened it; with `instruction` a line, looked up only for a message."""
    instruction: int
    suspends: bool
    """Whether that is code that can be suspended while the stage is open."""
    phase: int
    """One of the six above."""
    first: Cell | None
    """Of its fixtures, linked by `next`, the last one first."""
    parent: Scope | None

    def own(self, cell: Cell, definer: Definer | None) -> None:
        """Make a fixture its own; the value is still to come."""
        cell.next = self.first
        self.first = cell
        cell.definer = definer
        cell.stage = self.name
        cell.owner = self

    def cells(self) -> list[Cell]:
        """Those of its fixtures, the last one first."""
        found, cell = [], self.first
        while cell is not None:
            found.append(cell)
            cell = cell.next
        return found

    @property
    def owned(self) -> tuple[str, ...]:
        """The names of its fixtures, in the order they were defined; those on demand when they have been computed."""
        return tuple(cell.name for cell in self.cells() if cell.promise is None)[::-1]

    @property
    def is_open(self) -> bool:
        """Whether its block is running."""
        return self.phase in (OPEN, OPEN_WITH_MORE)

    @property
    def opened_at(self) -> Site:
        """Where it was opened."""
        return self.code, self.instruction

    @property
    def depth(self) -> int:
        """How many stages are open, this one included."""
        return len(self.path)

    @property
    def path(self) -> tuple[str, ...]:
        """Names of the open stages, outermost first, this one last."""
        return (*self.parent.path, self.name) if self.parent else (self.name,)

    def __repr__(self) -> str:
        return f"<stage {' > '.join(self.path)}>"


class Place:
    """What one Extensible knows of one stage name, whether such a stage is open or not.

    Attributes:
        plan: what runs there; None until it is decided, and again when extensions have changed.
        stage: the one that serves again and again, as long as nobody else can see it at its end.
    """

    __slots__ = ("plan", "stage")

    def __init__(self) -> None:
        self.plan: Any = None
        self.stage: Any = None
