"""The scopes and the cells of fixtures.

A scope is one open stage, seen as the owner of fixtures; each fixture is kept in a cell. The scopes of a TrainManager
form this stack during one training batch, innermost at the bottom::

    run                 owns epoch_num, step_num, ...
    └─ train
       └─ train_step_epoch
          └─ train_step_batch       owns batch, prediction, loss, ...
             └─ train_backward      <- innermost: `fixtures["x"] = 1` would be its own

A cell is made when the name of a fixture is first met, and is found again by every later stage that defines the name:

    cells["loss"]   value 0.31, owner <stage train_step_batch>      alive
    cells["norm"]   no value, owner <stage run>, compute <...>      alive and lazy: computed when it is first read
    cells["batch"]  no value, owner None, stage "train_step_batch"  dead: its stage has ended

A function that has kept the cell reads ``cell.value`` at a third of the price of a lookup by name; if the fixture is
not alive, the cell has no such attribute. A scope empties its cells as it closes, so that no cell keeps a value longer
than its stage.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from operator import attrgetter
from types import CodeType
from typing import Any, Final, NamedTuple, final

from train_manager.telling.source_locations import Site, line_of


@dataclass(frozen=True, slots=True)
class Caller:
    """A hook or a provider: a method that is called with the fixtures that its parameters name."""

    label: str  # ``EMA.post_train_step_batch``, for messages
    defined_at: str  # the line of the method, as ``file:line``
    owner: str  # the name of the extension; empty for a method of the Extensible itself
    stage: str  # the stage that it belongs to

    @property
    def whose(self) -> str:
        """``extension 'ema'``, for messages."""
        return f"extension {self.owner!r}" if self.owner else "the extensible itself"

    @property
    def request(self) -> str:
        """The label and the line, as in the chain of requests that an error shows."""
        return f"{self.label} ({self.defined_at})"

    @property
    def written(self) -> tuple[str, ...]:
        """The names of the fixtures that it declares to write; a provider writes none."""
        return ()


Definer = Site | Caller
"""The definer of a fixture: a line of code, or a hook or provider by its return value."""


def name_of(definer: Definer) -> str:
    """Return the name of the hook or provider, or of the function that holds the line."""
    return definer[0].co_qualname if isinstance(definer, tuple) else definer.label


def line_of_definer(definer: Definer) -> str:
    """Return the line, or the line at which the hook is defined, as ``file:line``."""
    return line_of(definer) if isinstance(definer, tuple) else definer.defined_at


class Content(NamedTuple):
    """A copy of the attributes of a cell, for a recursion that puts the fixture aside."""

    owner: Any
    definer: Any
    stage: str | None
    compute: Any
    next: Cell | None
    values: tuple[Any, ...]  # the value; empty if the cell has none


class Cell:
    """One fixture: its value, and the scope that owns it."""

    __slots__ = ("compute", "definer", "name", "next", "owner", "stage", "value")

    value: Any  # there only while the fixture is alive and computed: reading it is an AttributeError otherwise

    def __init__(self, name: str) -> None:
        self.name: str = name
        self.owner: Any = None  # the scope that the fixture dies with; None if it is not alive
        self.definer: Any = None  # the line or hook that has defined it; None: the line that opened the stage
        self.stage: str | None = None  # the name of the owner or, after its end, of the last owner
        self.compute: Any = None  # computes the value of a lazy fixture; None once it is computed, or if it is dead
        self.next: Cell | None = None  # the cell that the same owner got before this one

    def empty(self) -> None:
        """Let the fixture die."""
        self.owner = self.compute = None
        if hasattr(self, "value"):
            del self.value

    def content(self) -> Content:
        """Return a copy of the attributes of the cell."""
        values = (self.value,) if hasattr(self, "value") else ()
        return Content(self.owner, self.definer, self.stage, self.compute, self.next, values)

    def restore(self, content: Content) -> None:
        """Set the attributes of the cell to a copy."""
        self.owner, self.definer, self.stage, self.compute, self.next, values = content
        for value in values:
            self.value = value


LIVE: Final = object()
"""The value that a stage gives a live fixture, which is read elsewhere."""


@final
class LiveCell(Cell):
    """A fixture that is an attribute of the Extensible, if its stage gives it as LIVE: read there each time.

    So no write must keep the two equal. Any other value that the fixture is given, as by an extension where no stage
    has the name, is its value.

    Args:
        name: of the fixture.
        path: of the attribute, with dots.
        holder: returns the Extensible.
    """

    __slots__ = ("_holder", "_read", "given")

    given: Any  # LIVE, or the value; there only while the fixture is alive and computed

    def __init__(self, name: str, path: str, holder: Callable[[], Any]) -> None:
        super().__init__(name)
        self._read, self._holder = attrgetter(path), holder

    @property
    def value(self) -> Any:
        """The value of the attribute, or the value that was given."""
        return self._read(self._holder()) if self.given is LIVE else self.given

    @value.setter
    def value(self, given: Any) -> None:
        self.given = given

    @value.deleter
    def value(self) -> None:
        del self.given

    def content(self) -> Content:
        """Return a copy of the attributes of the cell, in which a live value stays live."""
        values = (self.given,) if hasattr(self, "given") else ()
        return Content(self.owner, self.definer, self.stage, self.compute, self.next, values)


class Hidden(NamedTuple):
    """The fixtures of a stage as they were: of the outer stage of a recursion, put aside until the inner stage ends."""

    outer: Scope
    first: Cell | None  # the newest cell of the outer stage, at which its list of cells begins
    contents: tuple[tuple[Cell, Content], ...]

    def put_back(self) -> None:
        """Give the stage its fixtures again; none of their names may be alive."""
        for cell, content in self.contents:
            cell.restore(content)
        self.outer.first = self.first

    def content_of(self, name: str) -> Content | None:
        """Return the copy of the cell of this name, or None."""
        return {cell.name: content for cell, content in self.contents}.get(name)


@final
class Extras:
    """The state of a scope beside its fixtures that the end of the stage must see to; few scopes have any."""

    __slots__ = ("hidden", "kept", "suspended")

    def __init__(self) -> None:
        self.hidden: Hidden | None = None  # the fixtures of an outer stage of the same name, until this scope closes
        self.suspended: list[tuple[Any, Any]] = []  # hooks and providers to resume at the end, with their generators
        self.kept: dict[str, Any] = {}  # the fixtures that outlive the stage, by `Stage.keep`; with values at the end


NEW, WAITING, OPEN, CLOSED = range(4)
"""The phases in the life of a scope; a stage that nothing looks into waits, and perhaps never opens."""


class Scope:
    """One open stage as the owner of fixtures, and the scope around it; ``Stage`` is the block that opens it."""

    __slots__ = ("__weakref__", "code", "extras", "first", "inner_stage", "instruction", "name", "parent", "phase")

    code: CodeType
    """The code of the method that opened the stage; with `instruction` a line, looked up only for a message."""
    instruction: int

    def __init__(self, name: str) -> None:
        self.name: str = name
        self.phase: int = NEW
        self.parent: Scope | None = None
        # A list of cells, linked by `next`, the newest first: adding a cell to it costs two assignments and no call.
        self.first: Cell | None = None
        self.extras: Extras | None = None  # made when the scope needs one
        self.inner_stage: Scope | None = None  # the stage inside this one that runs without being open

    def own(self, cell: Cell, definer: Definer | None) -> None:
        """Make a fixture this scope's own; the caller writes the value."""
        cell.next = self.first
        self.first = cell
        cell.definer = definer
        cell.stage = self.name
        cell.owner = self

    def disown(self, cells: Collection[Cell]) -> None:
        """Let fixtures of this scope die before it ends."""
        kept = [cell for cell in self.cells() if cell not in cells]
        self.first = None
        for cell in reversed(kept):
            cell.next = self.first
            self.first = cell
        for cell in cells:
            cell.empty()

    def gives(self, name: object) -> bool:
        """Return whether the stage defines a fixture of this name as it opens; ``Stage`` knows."""
        raise NotImplementedError

    def open_late(self) -> None:
        """Open the stage, which runs closed, after all; ``Stage`` does."""
        raise NotImplementedError

    def add_extras(self) -> Extras:
        """Return the extras of the scope, which are made at the first time."""
        if self.extras is None:
            self.extras = Extras()
        return self.extras

    @property
    def hidden(self) -> Hidden | None:
        """The fixtures of an outer stage of the same name, put aside until this scope closes."""
        return None if self.extras is None else self.extras.hidden

    def cells(self) -> list[Cell]:
        """Return the cells of this scope's fixtures, the newest first."""
        found, cell = [], self.first
        while cell is not None:
            found.append(cell)
            cell = cell.next
        return found

    def contents(self) -> Hidden:
        """Return a copy of this scope's cells."""
        return Hidden(self, self.first, tuple((cell, cell.content()) for cell in self.cells()))

    @property
    def owned(self) -> tuple[str, ...]:
        """The names of this scope's fixtures, oldest first; a lazy fixture counts once it is computed."""
        return tuple(cell.name for cell in self.cells()[::-1] if cell.compute is None)

    @property
    def is_open(self) -> bool:
        """Whether the block of the stage is running."""
        return self.phase == OPEN

    @property
    def opened_at(self) -> Site:
        """The line that opened the stage."""
        return self.code, self.instruction

    @property
    def depth(self) -> int:
        """The number of open stages, this one included."""
        return len(self.path)

    @property
    def path(self) -> tuple[str, ...]:
        """Names of the open stages, outermost first, this one last."""
        return (*self.parent.path, self.name) if self.parent else (self.name,)

    def __repr__(self) -> str:
        return f"<stage {' > '.join(self.path)}>"


ALWAYS = Scope("always")
"""The owner of the fixtures that are always there; it is never open, and never closes."""
