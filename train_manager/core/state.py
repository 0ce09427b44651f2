"""The state of one Extensible: which scopes are open, what is alive in them, who is being called. Stages and fixtures
change in ``store.py``.

run                   owns epoch_num                    one cell for each name, found in one flat dict
└─ train_step_batch   owns batch, loss   <- innermost   a scope that closes empties its own
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Protocol

from train_manager.core import affinity
from train_manager.core.scope import Caller, Cell, Content, Place, Scope

FAILURE = ("exc_type", "exc_value", "traceback")
"""For ``@always`` hooks: why the stage ends; None while nothing has failed."""

MOST_DEAD = 1000
"""As many names of dead fixtures may be kept for the words of an error."""

ALWAYS_THERE = ("fixtures", "stage", *FAILURE)
"""Names that nobody may define; an Extensible adds its own."""


class Promise(Protocol):
    """A provided fixture of an open stage that nobody has asked for yet; calling it computes the value."""

    @property
    def provider(self) -> Caller: ...
    def __call__(self) -> Any: ...


class State:
    """What is alive, and in which scopes.

    Attributes:
        cells: the places of all fixtures that have been met, by name; a plain dict, for every look-up goes there.
        most_cells: as many as this, and those that nobody needs are forgotten.
        always_there: names that need no stage and that nobody may write.
        innermost: the innermost open scope.
        places: of every stage name that has been asked for, in that order.
        place_of: makes one.
        plan_of: decides what runs at a stage, where that has not been decided.
        extensions: who is served, by name.
        running: the hook or provider that is being called.
        requests: the providers that are being computed, the first asked for first.
        strict: hooks may write only what they declare.
        notes_errors: an error in the body of a stage gets a note that says at which.
        times_hooks: the time that hooks take is added up in ``hook_seconds``.
        shares: another Extensible has, or had, an extension of this one.
        lock: held by the thread that opened the outermost stage the last time; by nobody where a task has.
        task: a weak reference to that task.
    """

    __slots__ = (
        "__weakref__",
        "always_there",
        "cells",
        "extensions",
        "hook_seconds",
        "innermost",
        "lock",
        "most_cells",
        "notes_errors",
        "place_of",
        "places",
        "plan_of",
        "requests",
        "running",
        "shares",
        "strict",
        "task",
        "times_hooks",
    )  # not for space: attributes of a fixed layout are read fastest, and every stage reads a dozen

    def __init__(self, always: Mapping[str, Any]) -> None:
        self.cells: dict[str, Cell] = {}
        self.most_cells = MOST_DEAD
        self.always_there = frozenset({*always, *ALWAYS_THERE})
        for name in self.always_there:
            self.cell(name).owner = ALWAYS
        for name in FAILURE:
            self.cells[name].value = None
        for name, value in always.items():
            self.cells[name].value = value
        # The innermost stage is looked up rather than written at each opening and each end.
        self.cells["stage"].promise = lambda: self.innermost
        self.innermost: Scope | None = None
        self.places: dict[str, Place] = {}
        self.place_of: Callable[[str], Place] = self.places.__getitem__
        self.plan_of: Callable[[str], Any] = self.places.__getitem__
        self.extensions: Mapping[str, Any] = {}
        self.running: Caller | None = None
        self.requests: list[str] = []
        self.strict = False
        self.shares = False
        self.notes_errors = False
        self.times_hooks = False
        self.hook_seconds = 0.0
        self.lock: Any = affinity.lock_of_nobody()
        self.task: Callable[[], object] | None = None

    # ---- names -------------------------------------------------------------------------------------------------

    def cell(self, name: str) -> Cell:
        """The place of a fixture, made if it is the first time."""
        if name not in self.cells:
            if len(self.cells) >= self.most_cells:
                self._forget_the_dead()
            self.cells[name] = Cell(name)
        return self.cells[name]

    def pinned(self, name: str) -> Cell:
        """The same, for somebody who keeps it."""
        cell = self.cell(name)
        cell.is_pinned = True
        return cell

    def forget_definers(self) -> None:
        """Let go of who has defined what is dead."""
        for cell in self.cells.values():
            if cell.owner is None:
                cell.definer = None

    def _forget_the_dead(self) -> None:
        """Let go of names that were made at run time, which may be ever new ones."""
        hidden = {cell.name for scope in self.scopes() if scope.hidden for cell, _ in scope.hidden.contents}
        dead = [name for name, cell in self.cells.items() if cell.owner is None and not cell.is_pinned]
        for name in dead:
            if name not in hidden:
                del self.cells[name]
        self.most_cells = MOST_DEAD + 2 * len(self.cells)

    def has(self, name: object) -> bool:
        """Whether a look-up would find it; computes nothing."""
        cell = self.cells.get(name)  # type: ignore[call-overload]
        return cell is not None and cell.owner is not None

    def value(self, name: str) -> Any:
        """The value of what is alive, computed if need be."""
        cell = self.cells[name]
        return cell.value if cell.promise is None else cell.promise()

    def names(self) -> list[str]:
        """What is alive, also what is to be computed on demand; the always-there names left out."""
        return [cell.name for scope in self.scopes()[::-1] for cell in scope.cells()[::-1]]

    @property
    def computed(self) -> dict[str, Any]:
        """The values of what is alive, what was not computed yet and the always-there names left out."""
        return {name: self.cells[name].value for name in self.names() if self.cells[name].promise is None}

    @property
    def promised(self) -> set[str]:
        """What is to be computed on demand."""
        return {name for name in self.names() if self.cells[name].promise is not None}

    @property
    def gone(self) -> set[str]:
        """What was alive once."""
        return {name for name, cell in self.cells.items() if cell.owner is None and cell.stage is not None}

    def took(self, name: str) -> str | None:
        """The stage that took a name along as it closed; None where none has."""
        return self.cells[name].stage if name in self.gone else None

    def absent(self, defaults: Mapping[str, Any], stage: str) -> dict[str, Any]:
        """Those of some values whose names will not be alive when a stage of this name opens."""
        outer = self.scope_of(stage)  # what it owns will be hidden
        hidden = set() if outer is None else {cell.name for cell in outer.cells()}
        return {name: defaults[name] for name in defaults if not self.has(name) or name in hidden}

    # ---- scopes ------------------------------------------------------------------------------------------------

    @property
    def path(self) -> tuple[str, ...]:
        """Names of the open stages, outermost first."""
        return self.innermost.path if self.innermost else ()

    def scopes(self) -> list[Scope]:
        """Those that are open, the innermost first."""
        found, scope = [], self.innermost
        while scope is not None:
            found.append(scope)
            scope = scope.parent
        return found

    def scope_of(self, stage: str) -> Scope | None:
        """The innermost open scope of this name."""
        scope = self.innermost
        while scope is not None and scope.name != stage:
            scope = scope.parent
        return scope

    @property
    def opened(self) -> dict[str, Scope]:
        """The innermost open scope of each stage name."""
        return {scope.name: scope for scope in self.scopes()[::-1]}

    def owner_of(self, name: str) -> Scope | None:
        """The scope that owns a name; None where it is not alive."""
        owner: Scope | None = self.cells[name].owner if name in self.cells else None
        return None if owner is ALWAYS else owner

    def hidden(self, name: str, owner: Scope | None = None) -> Content | None:
        """What a recursion inside ``owner`` (None: anywhere) has put aside under this name: it will be back."""
        for scope in self.scopes():
            if scope is owner:
                break
            content = None if scope.hidden is None else scope.hidden.content_of(name)
            if content is not None:
                return content
        return None


class Alive(Mapping[str, Any]):
    """The values that are there now, without their cells; what is to be computed on demand is left out."""

    __slots__ = ("_state",)

    def __init__(self, state: State) -> None:
        self._state = state

    def __getitem__(self, name: str) -> Any:
        try:
            return self._state.cells[name].value
        except AttributeError:
            raise KeyError(name) from None

    def __iter__(self) -> Iterator[str]:
        return (name for name, cell in self._state.cells.items() if hasattr(cell, "value"))

    def __len__(self) -> int:
        return sum(1 for _ in self)


ALWAYS = Scope()
"""The owner of what is always there."""
