"""The state of one Extensible: which scopes are open, what is alive in them, which hook is being called.

run                   owns epoch_num                    each name has one cell, found in one flat dict
└─ train_step_batch   owns batch, loss   <- innermost   a scope that closes empties its own cells

Only reading is here: stages and fixtures change in ``store.py``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol, final
from weakref import ref

from train_manager.core.scope import Caller, Cell, Content, Scope
from train_manager.core.thread_affinity import NO_THREAD
from train_manager.telling.words import NO_WORDS, Words

FAILURE = ("exc_type", "exc_value", "traceback")
"""For ``@always`` hooks: why the stage ends; None as long as nothing has failed."""

ALWAYS_THERE = ("fixtures", "stage", *FAILURE)
"""Names that cannot be defined; an Extensible adds its own."""


@final
@dataclass(frozen=True, slots=True)
class Options:
    """What a class of Extensibles asks of its stages, beside the stages themselves.

    Attributes:
        own_name: a second fixture name of the object, beside ``extensible``.
        times_hooks: the time that hooks take is added up in ``hook_seconds``.
        notes_errors: an error in the body of a stage gets a note that says at which stage.
        joined: the stage whose pre hooks an extension gets that is added while it is open; empty if there is none.
        words: what other tools call its fixtures, stages and hooks.
        too_late: where hooks may not modify a fixture, for the checker.
        replacing: fixtures of its outermost stage that take the place of the hooks that say so, with ``replaced_by``.
        checks: what refuses a value that a fixture is modified to, by its stage and name; given the value and who
            modifies it.
    """

    own_name: str = "extensible"
    times_hooks: bool = False
    notes_errors: bool = False
    joined: str = ""
    words: Words = NO_WORDS
    too_late: tuple[Any, ...] = ()
    replacing: frozenset[str] = frozenset()
    checks: Mapping[tuple[str | None, str], Callable[[Any, str], object]] = field(default_factory=dict)


def _nothing() -> None: ...


class LazyFixture(Protocol):
    """A provided fixture of an open stage, to be computed when it is first asked for; a call computes it."""

    @property
    def provider(self) -> Caller: ...
    def __call__(self) -> Any: ...


class State:
    """What is alive, and in which scopes.

    Attributes:
        cells: the cells of all fixtures that have been met, by name; a plain dict, since every lookup goes there.
        always_there: names that need no stage and that cannot be written.
        own_names: those of the Extensible, which the state refers to weakly: its cell computes it at each lookup.
        innermost: the innermost open scope.
        open: the innermost open scope of each stage name; looked up at each opening, however deep.
        plans: what runs at each stage that was asked for, by name; None if extensions have changed since.
        late: the cells of fixtures that are lazy or were given as seldom ones: such a fixture waits in its stage, and
            its cell is written when something asks for it.
        version: of the plans; each change of the extensions raises it.
        plan_of: decides what runs at a stage, and keeps it in ``plans``.
        extensions: the extensions that are served, by name.
        running: the hook or provider that is being called.
        requests: the providers that are being computed, the first asked for first.
        options: what the class of the Extensible asks for.
        strict: hooks may write only what they declare.
        hook_seconds: the time that hooks have taken, if the options ask for it.
        before_outermost: called as a stage opens that is inside no other and has no plan yet.
        shares: another Extensible has, or had, an extension of this one.
        thread: the thread that opened the outermost stage the last time; ``NO_THREAD`` if a task did.
        task: a weak reference to that task.
    """

    __slots__ = (
        "__weakref__",
        "always_there",
        "before_outermost",
        "cells",
        "extensions",
        "hook_seconds",
        "innermost",
        "late",
        "open",
        "options",
        "own_names",
        "plan_of",
        "plans",
        "requests",
        "running",
        "shares",
        "strict",
        "task",
        "thread",
        "version",
    )  # not for space: attributes of a fixed layout are read fastest, and every stage reads a dozen

    def __init__(self, always: Mapping[str, Any], options: Options | None = None, owner: object = None) -> None:
        self.cells: dict[str, Cell] = {}
        self.options: Options = options or Options()
        own = {"extensible", self.options.own_name} if owner is not None else {*()}
        self.own_names: frozenset[str] = frozenset(own)
        self.always_there: frozenset[str] = frozenset({*always, *ALWAYS_THERE, *own})
        for name in self.always_there:
            self.cell(name).owner = ALWAYS
        for name in FAILURE:
            self.cells[name].value = None
        for name, value in always.items():
            self.cells[name].value = value
        for name in self.own_names:
            self.cells[name].compute = ref(owner)
        # Computed at each lookup, since to write it would cost more, at each opening and each end.
        self.cells["stage"].compute = lambda: self.innermost
        self.innermost: Scope | None = None
        self.open: dict[str, Scope] = {}
        self.plans: dict[str, Any] = {}
        self.version: int = 0
        self.late: dict[str, Cell] = {}
        self.plan_of: Callable[[str], Any] = self.plans.__getitem__
        self.before_outermost: Callable[[], None] = _nothing
        self.extensions: Mapping[str, Any] = {}
        self.running: Caller | None = None
        self.requests: list[str] = []
        self.strict: bool = False
        self.shares: bool = False
        self.hook_seconds: float = 0.0
        self.thread: int = NO_THREAD
        self.task: Callable[[], object] | None = None

    def forget_plans(self) -> None:
        """Make each plan again at the next opening of its stage."""
        self.version += 1
        for stage in self.plans:
            self.plans[stage] = None

    # ---- names -------------------------------------------------------------------------------------------------

    def cell(self, name: str) -> Cell:
        """Return the cell of a fixture; it is made at the first time."""
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
        """Return whether a name is alive, also if it is still to be computed."""
        cell = self.cells.get(name)  # type: ignore[call-overload]
        return cell is not None and (cell.owner is not None or self.bring(cell.name))

    def bring(self, name: str) -> bool:
        """Write the cell of a fixture that waits in an open stage, the innermost one; return whether there is one."""
        return name in self.late and self.bring_from(self.innermost, name)

    def bring_from(self, scope: Scope | None, name: str) -> bool:
        """Do so for a fixture that waits in this scope, or in one around it, unless it is written."""
        if self.late[name].owner is not None:
            return True
        while scope is not None:
            is_hidden = self.open.get(scope.name) is not scope  # by a recursion
            if not is_hidden and scope.bring(self.late[name]):
                return True
            scope = scope.parent
        return False

    def bring_all(self) -> None:
        """Write the cells of all that wait."""
        for name in self.late:
            self.has(name)

    def value(self, name: str) -> Any:
        """Return the value of a live fixture; a lazy one is computed."""
        cell = self.cells[name]
        return cell.value if cell.compute is None else cell.compute()

    def names(self) -> list[str]:
        """Return the names of the live fixtures, lazy ones too, without those that are always there."""
        self.bring_all()
        return [cell.name for scope in self.scopes()[::-1] for cell in scope.cells()[::-1]]

    @property
    def computed(self) -> dict[str, Any]:
        """The values of the live fixtures, without lazy ones and those that are always there."""
        return {name: self.cells[name].value for name in self.names() if self.cells[name].compute is None}

    @property
    def lazy(self) -> set[str]:
        """The names of the live fixtures that are still to be computed."""
        return {name for name in self.names() if self.cells[name].compute is not None}

    @property
    def gone(self) -> set[str]:
        """The names of dead fixtures."""
        self.bring_all()
        return {name for name, cell in self.cells.items() if cell.owner is None and cell.stage is not None}

    def ended_with(self, name: str) -> str | None:
        """Return the stage that a dead fixture ended with, or None."""
        return self.cells[name].stage if name in self.gone else None

    def absent(self, defaults: Mapping[str, Any], stage: str) -> dict[str, Any]:
        """Return the values whose names will not be alive when a stage of this name opens."""
        self.bring_all()
        outer = self.scope_of(stage)  # its fixtures will be hidden
        hidden = set() if outer is None else {cell.name for cell in outer.cells()}
        return {name: defaults[name] for name in defaults if not self.has(name) or name in hidden}

    # ---- scopes ------------------------------------------------------------------------------------------------

    @property
    def path(self) -> tuple[str, ...]:
        """Names of the open stages, outermost first."""
        return self.innermost.path if self.innermost else ()

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
        """Return the scope that owns a name, or None if it is not alive."""
        owner: Scope | None = self.cells[name].owner if self.has(name) else None
        return None if owner is ALWAYS else owner

    def hidden(self, name: str, owner: Scope | None = None) -> Content | None:
        """Return what a recursion has put aside under this name, and will put back; None if there is nothing.

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


class Alive(Mapping[str, Any]):
    """The values of the live fixtures, without their cells and without lazy ones."""

    __slots__ = ("_state",)

    def __init__(self, state: State) -> None:
        self._state = state

    def __getitem__(self, name: str) -> Any:
        state = self._state
        if name in state.own_names:
            return state.value(name)
        if state.has(name) and state.cells[name].compute is None:
            return state.cells[name].value
        raise KeyError(name)

    def __iter__(self) -> Iterator[str]:
        self._state.bring_all()
        own = self._state.own_names
        return (name for name, cell in self._state.cells.items() if name in own or hasattr(cell, "value"))

    def __len__(self) -> int:
        return sum(1 for _ in self)


ALWAYS = Scope("always")
"""The owner of the fixtures that are always there."""
