"""The state of one Extensible: which scopes are open, what is alive in them, which hook is being called.

run                   owns epoch_num                    each name has one cell, found in one flat dict
└─ train_step_batch   owns batch, loss   <- innermost   a scope that closes empties its own cells

This file only reads the state; ``store.py`` changes it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol, final
from weakref import ref

from train_manager.core.scope import Caller, Cell, Content, LiveCell, Scope
from train_manager.telling.words import NO_WORDS, Words

FAILURE = ("exc_type", "exc_value", "traceback")
"""Fixtures for ``@always`` hooks: the error that ends the stage; None as long as nothing has failed."""

ALWAYS_THERE = ("fixtures", "stage", *FAILURE)
"""Names that are alive without a stage, and cannot be defined; an Extensible adds its own."""


@final
@dataclass(frozen=True, slots=True)
class Options:
    """The settings of a class of Extensibles: the same for all its objects, and never changed."""

    own_name: str = "extensible"  # a second fixture name of the object, beside `extensible`
    times_hooks: bool = False  # the time that hooks take is added to `State.hook_seconds`
    notes_errors: bool = False  # an error in the body of a stage gets a note with the path of the stage
    closing: frozenset[str] = frozenset()  # stages that stay closed while nothing looks into them
    joined: str = ""  # the stage that extensions may join while it is open; empty if there is none
    words: Words = NO_WORDS  # the names that its fixtures, stages and hooks have in other tools
    too_late: tuple[Any, ...] = ()  # points at which hooks may not modify a fixture any more; for the checker
    # Fixtures that are attributes of the object, by name: the path of the attribute, with dots. The stage that defines
    # such a fixture says how long it is alive, and gives LIVE as its value.
    live: Mapping[str, str] = field(default_factory=dict)
    replacing: frozenset[str] = frozenset()  # fixtures of its loop for which `@replaced_by` leaves hooks out
    # By stage and name of a fixture: called with a value that the fixture is modified to, and with `error_data` of the
    # hook or function that modifies it; raises to refuse the value.
    checks: Mapping[tuple[str | None, str], Callable[[Any, Mapping[str, Any]], object]] = field(default_factory=dict)


def _nothing() -> None: ...


class LazyFixture(Protocol):
    """The lazy fixture of a provider; a call computes the value."""

    @property
    def provider(self) -> Caller: ...
    def __call__(self) -> Any: ...


class State:
    """The fixtures that are alive and the scopes that are open; each attribute is described in ``__init__``."""

    __slots__ = (
        "__weakref__",
        "always_there",
        "cells",
        "check_once",
        "closed",
        "extensions",
        "hook_seconds",
        "innermost",
        "is_checked",
        "open",
        "options",
        "own_names",
        "plan_of",
        "plans",
        "requests",
        "running",
        "shares",
        "strict",
        "thread",
        "without_hooks",
    )  # for speed, not for space: each stage reads a dozen of these attributes, and slots are read fastest

    def __init__(self, always: Mapping[str, Any], options: Options | None = None, owner: object = None) -> None:
        self.cells: dict[str, Cell] = {}  # of all fixtures met so far; a plain dict, since each lookup reads it
        self.options: Options = options or Options()
        own = {"extensible", self.options.own_name} if owner is not None else {*()}
        self.own_names: frozenset[str] = frozenset(own)  # fixture names of the Extensible
        self.always_there: frozenset[str] = frozenset({*always, *ALWAYS_THERE, *own})  # these cannot be written
        for name in self.always_there:
            self.cell(name).owner = ALWAYS
        for name in FAILURE:
            self.cells[name].value = None
        for name, value in always.items():
            self.cells[name].value = value
        # Weakly, since the Extensible holds this state: a value in the cell would be a cycle, and keep both alive.
        for name in self.own_names:
            self.cells[name].compute = ref(owner)
        if owner is not None:
            self.cells.update({name: LiveCell(name, path, ref(owner)) for name, path in self.options.live.items()})
        # Computed at each lookup: writing the cell at each opening and each end of a stage would cost more.
        self.cells["stage"].compute = self.to_write
        # The open stages.
        self.innermost: Scope | None = None
        self.open: dict[str, Scope] = {}  # the innermost open scope of each stage name, found without a walk outwards
        # The plans of the stages that have opened, by name; None: make it anew, since extensions have changed.
        self.plans: dict[str, Any] = {}
        self.without_hooks: bool = False  # the plans that are made now have no hooks
        self.plan_of: Callable[[str], Any] = self.plans.__getitem__  # makes a plan, and keeps it in `plans`
        # The check of the hooks, called as an outermost stage opens, unless the hooks were checked already.
        self.check_once: Callable[[], None] = _nothing
        self.is_checked: bool = False
        # The stages of `Options.closing` that nothing looks into; they run without being opened (`Stage.__enter__`).
        self.closed: set[str] = set()
        # The extensions and their hooks.
        self.extensions: Mapping[str, Any] = {}
        self.running: Caller | None = None  # the hook or provider that is being called
        self.requests: list[str] = []  # the chain of providers that are being computed, outermost first; for errors
        self.strict: bool = False  # hooks may write only what they declare
        self.shares: bool = False  # another Extensible has, or had, an extension of this one
        self.hook_seconds: float = 0.0  # the time that hooks have taken, with `Options.times_hooks`
        self.thread: int = 0  # that opened the last outermost stage; 0 before the first one

    def forget_plans(self) -> None:
        """Let each plan be made anew at the next opening of its stage."""
        self.closed.clear()
        for stage in self.plans:
            self.plans[stage] = None

    def cell(self, name: str) -> Cell:
        """Return the cell of a fixture; it is made the first time that the name is met."""
        try:
            return self.cells[name]
        except KeyError:
            cell = self.cells[name] = Cell(name)
            return cell

    def forget_definers(self) -> None:
        """Let go of the definers of dead fixtures, which may be hooks of a removed extension."""
        for cell in self.cells.values():
            if cell.owner is None:
                cell.definer = None

    def has(self, name: object) -> bool:
        """Return whether a name is alive, also if its value was not computed yet."""
        cell = self.cells.get(name)  # type: ignore[call-overload]
        return (cell is not None and cell.owner is not None) or self._opens_for(name)

    def _opens_for(self, name: object) -> bool:
        """Open the stage that runs closed if it gives a fixture of this name; return whether it does."""
        closed = None if self.innermost is None else self.innermost.inner_stage
        if closed is None or not closed.gives(name):
            return False
        closed.open_late()
        return True

    def open_inner(self) -> None:
        """Open the stage that runs closed, if there is one: code inside defines a fixture, or looks at all of them."""
        closed = None if self.innermost is None else self.innermost.inner_stage
        if closed is not None:
            closed.open_late()

    def to_write(self) -> Scope | None:
        """Return the innermost stage, which opens late if it runs closed; None if there is none."""
        self.open_inner()
        return self.innermost

    def value(self, name: str) -> Any:
        """Return the value of a live fixture; a lazy one is computed."""
        cell = self.cells[name]
        return cell.value if cell.compute is None else cell.compute()

    def names(self) -> list[str]:
        """Return the names of the live fixtures, lazy ones too, without the names that are always there."""
        self.open_inner()
        # Outermost stage first, and in each stage the oldest fixture first: as they were defined.
        return [cell.name for scope in self.scopes()[::-1] for cell in scope.cells()[::-1]]

    @property
    def computed(self) -> dict[str, Any]:
        """The values of the live fixtures, without lazy fixtures and the names that are always there."""
        return {name: self.cells[name].value for name in self.names() if self.cells[name].compute is None}

    @property
    def lazy(self) -> set[str]:
        """The names of the live fixtures whose value was not computed yet."""
        return {name for name in self.names() if self.cells[name].compute is not None}

    @property
    def gone(self) -> set[str]:
        """The names of dead fixtures."""
        return {name for name, cell in self.cells.items() if cell.owner is None and cell.stage is not None}

    def former_stage(self, name: str) -> str | None:
        """Return the stage that a dead fixture ended with, or None."""
        return self.cells[name].stage if name in self.gone else None

    def absent(self, defaults: Mapping[str, Any], stage: str) -> dict[str, Any]:
        """Return the defaults whose names will not be alive when a stage of this name opens."""
        outer = self.scope_of(stage)  # a recursion: the fixtures of the outer stage will be put aside
        hidden = set() if outer is None else {cell.name for cell in outer.cells()}
        return {name: defaults[name] for name in defaults if not self.has(name) or name in hidden}

    @property
    def path(self) -> tuple[str, ...]:
        """Names of the open stages, outermost first."""
        if self.innermost is None:
            return ()
        closed = self.innermost.inner_stage
        return self.innermost.path if closed is None else (*self.innermost.path, closed.name)

    def scopes(self) -> list[Scope]:
        """Return the open scopes, the innermost first."""
        found, scope = [], self.innermost
        while scope is not None:
            found.append(scope)
            scope = scope.parent
        return found

    def scope_of(self, stage: str) -> Scope | None:
        """Return the innermost open scope of this name, or None."""
        return self.open.get(stage)

    def owner_of(self, name: str) -> Scope | None:
        """Return the scope that owns a name; None if it is not alive, or is always there."""
        owner: Scope | None = self.cells[name].owner if self.has(name) else None
        return None if owner is ALWAYS else owner

    def find_hidden(self, name: str, owner: Scope | None = None) -> Content | None:
        """Return the fixture of this name that a recursion has put aside, and will put back; None if there is none.

        Args:
            name: the fixture's name.
            owner: look only at recursions inside this scope; None stands for all of them.
        """
        scope = self.innermost
        while scope is not None and scope is not owner:
            if scope.extras is not None and scope.extras.hidden is not None:
                content = scope.extras.hidden.content_of(name)
                if content is not None:
                    return content
            scope = scope.parent
        return None


ALWAYS = Scope("always")
"""The owner of the fixtures that are always there; it is never open, and never closes."""
