"""A scope is one open stage, seen as the owner of fixtures; each fixture is kept in a cell.

A cell is made when the name of a fixture is first met, and is found again by every later stage that defines the name:

    cells["loss"]   value 0.31, owner <stage train_step_batch>      alive
    cells["norm"]   no value, owner <stage run>, compute <...>      alive and lazy: computed when it is first read
    cells["batch"]  no value, owner None, stage "train_step_batch"  dead: its stage has ended

A function that has kept the cell reads ``cell.value``, without a lookup by name, at a third of its price; if the
fixture is not alive, there is no such attribute. A scope empties its cells as it closes, so no value outlives its stage
here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import CodeType
from typing import Any, NamedTuple, Protocol, final

from train_manager.telling.source_locations import Site


class Caller(Protocol):
    """A hook or a provider, as fixtures know the code that is being called."""

    @property
    def label(self) -> str: ...
    @property
    def whose(self) -> str: ...
    @property
    def written(self) -> tuple[str, ...]: ...
    @property
    def call(self) -> Any: ...


Definer = Site | Caller
"""The definer of a fixture: a line of code, or a hook or provider by its return value."""


class Content(NamedTuple):
    """The content of a cell, which can be put back."""

    owner: Any
    definer: Any
    stage: str | None
    compute: Any
    next: Cell | None
    values: tuple[Any, ...]


@final
class Cell:
    """One fixture: its value, and the scope that owns it.

    Attributes:
        name: the fixture's name.
        value: the fixture's value; reading it is an AttributeError unless the fixture is alive and computed.
        owner: the scope that the fixture dies with; None if it is not alive.
        definer: the line or hook that has defined the fixture; None stands for the line that opened the stage.
        stage: the name of the owner, or of the last one.
        compute: computes the value of a lazy fixture; None if it is computed, or if the fixture is dead.
        next: the cell that the same owner got before this one.
    """

    __slots__ = ("compute", "definer", "name", "next", "owner", "stage", "value")

    value: Any

    def __init__(self, name: str) -> None:
        self.name: str = name
        self.owner: Any = None
        self.definer: Any = None
        self.stage: str | None = None
        self.compute: Any = None
        self.next: Cell | None = None

    def empty(self) -> None:
        """Let the fixture die."""
        self.owner = self.compute = None
        if hasattr(self, "value"):
            del self.value

    def content(self) -> Content:
        """Return the content of the cell."""
        values = (self.value,) if hasattr(self, "value") else ()
        return Content(self.owner, self.definer, self.stage, self.compute, self.next, values)

    def restore(self, content: Content) -> None:
        """Put a content back."""
        self.owner, self.definer, self.stage, self.compute, self.next, values = content
        for value in values:
            self.value = value


class Hidden(NamedTuple):
    """The fixtures of the outer stage of a recursion, put aside until the inner stage ends."""

    outer: Scope
    first: Cell | None
    contents: tuple[tuple[Cell, Content], ...]

    def content_of(self, name: str) -> Content | None:
        """Return what was put aside under a name, or None."""
        return {cell.name: content for cell, content in self.contents}.get(name)


@final
class Extras:
    """What few scopes have beside their fixtures, and the end must see to.

    Attributes:
        hidden: what an outer stage of the same name owns, put aside until this scope closes.
        suspended: hooks and providers that go on at the end, with their generators, the last one first.
        kept: the fixtures that outlive the stage, since ``Stage.keep`` was called.
        is_joinable: extensions may come and go: its pre hooks have run, and it is not ending.
        is_ending: its post hooks run.
        waiting: to be done as soon as its pre hooks have run.
        left: hooks and providers of extensions that have left while it is open.
        resting: around-hooks of extensions that pause, which were left and are entered again.
    """

    __slots__ = ("hidden", "is_ending", "is_joinable", "kept", "left", "resting", "suspended", "waiting")

    def __init__(self) -> None:
        self.hidden: Hidden | None = None
        self.suspended: list[tuple[Any, Any]] = []
        self.kept: dict[str, Any] = {}
        self.is_joinable: bool = False
        self.is_ending: bool = False
        self.waiting: list[Callable[[], None]] = []
        self.left: list[Any] = []
        self.resting: list[Any] = []


NEW, OPEN, CLOSED = range(3)
"""The life of a scope."""


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
        part: the stage inside it that runs without being opened, a part of the path; None if there is none.
        seldom: its fixtures whose cells are written when something asks for them.
    """

    __slots__ = (
        "__weakref__",
        "code",
        "extras",
        "first",
        "instruction",
        "name",
        "parent",
        "part",
        "phase",
        "seldom",
    )

    code: CodeType
    """The code of the method that opened the stage; with `instruction` a line, looked up only for a message."""
    instruction: int

    def __init__(self, name: str) -> None:
        self.name: str = name
        self.phase: int = NEW
        self.parent: Scope | None = None
        self.first: Cell | None = None  # the newest of its fixtures, which are linked by `next`
        self.extras: Extras | None = None
        self.part: str | None = None
        self.seldom: Mapping[str, Any] | None = None

    def own(self, cell: Cell, definer: Definer | None) -> None:
        """Make a fixture this scope's own; the value is still to be written."""
        cell.next = self.first
        self.first = cell
        cell.definer = definer
        cell.stage = self.name
        cell.owner = self

    def bring(self, cell: Cell) -> bool:
        """Write the cell of a fixture that waits in this scope; return whether it does."""
        return False

    def add_extras(self) -> Extras:
        """Return its extras, made if it has none."""
        if self.extras is None:
            self.extras = Extras()
        return self.extras

    def may_renew(self, cell: Cell, definer: Definer | None) -> bool:
        """Return whether a fixture may be defined anew: by its definer or its extension, or after that one has left."""
        left = () if self.extras is None else self.extras.left
        owner = getattr(definer, "owner", "")
        is_its_extensions = owner != "" and owner == getattr(cell.definer, "owner", "")
        return cell.definer is definer or is_its_extensions or any(cell.definer is gone for gone in left)

    @property
    def hidden(self) -> Hidden | None:
        """What an outer stage of the same name owns, put aside until this scope closes."""
        return None if self.extras is None else self.extras.hidden

    def cells(self) -> list[Cell]:
        """Return the cells of its fixtures, the newest first."""
        found, cell = [], self.first
        while cell is not None:
            found.append(cell)
            cell = cell.next
        return found

    @property
    def owned(self) -> tuple[str, ...]:
        """The names of its fixtures, oldest first; a lazy fixture counts once it is computed."""
        written = [cell.name for cell in self.cells()][::-1]
        computed = [cell.name for cell in self.cells() if cell.compute is None][::-1]
        return (*computed, *(name for name in self.seldom or () if name not in written))

    @property
    def is_open(self) -> bool:
        """Whether its block is running."""
        return self.phase == OPEN

    @property
    def is_ending(self) -> bool:
        """Whether its post hooks run; known of the stage that extensions may join, else False."""
        return self.extras is not None and self.extras.is_ending

    @property
    def opened_at(self) -> Site:
        """The line that opened it."""
        return self.code, self.instruction

    @property
    def depth(self) -> int:
        """The number of open stages, this one included."""
        return len(self.path)

    @property
    def path(self) -> tuple[str, ...]:
        """Names of the open stages, outermost first, this one last."""
        path = (*self.parent.path, self.name) if self.parent else (self.name,)
        return path if self.part is None else (*path, self.part)

    def __repr__(self) -> str:
        return f"<stage {' > '.join(self.path)}>"
