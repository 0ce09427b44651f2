"""The state of one Extensible: which scopes are open, what is alive in them, which hook is being called.

``Stage`` opens scopes itself, and closes them by ``Store.close_scope``; users write fixtures by ``Fixtures``.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from threading import get_ident
from typing import Any, final
from weakref import ref

from train_manager.core import messages
from train_manager.core.messages import Asked, Names
from train_manager.core.scope import (
    ALWAYS,
    CLOSED,
    LIVE,
    Caller,
    Cell,
    Content,
    Definer,
    Hidden,
    LiveCell,
    Scope,
    line_of_definer,
    name_of,
)
from train_manager.telling.errors import FixtureExists, FixtureNotFound
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
    times_hooks: bool = False  # the time that hooks take is added to `Store.hook_seconds`
    notes_errors: bool = False  # an error in the body of a stage gets a note with the path of the stage
    closing: frozenset[str] = frozenset()  # stages that stay closed while nothing looks into them
    joined: str = ""  # the stage that extensions may join while it is open; empty if there is none
    words: Words = NO_WORDS  # the names that its fixtures, stages and hooks have in other tools
    too_late: tuple[Any, ...] = ()  # points at which hooks may not modify a fixture any more; for the checker
    # Fixtures that are attributes of the object, by name: the path of the attribute, with dots. The stage that defines
    # such a fixture says how long it is alive, and gives LIVE as its value.
    live: Mapping[str, str] = field(default_factory=dict)
    # By stage and name of a fixture: called with a value that the fixture is modified to, and with `Store.asked` of the
    # hook or function that modifies it; raises to refuse the value.
    checks: Mapping[tuple[str | None, str], Callable[[Any, Mapping[str, Any]], object]] = field(default_factory=dict)


def _nothing() -> None: ...


def unwatched(stage: Scope, ran: Caller | str) -> None:
    """Do nothing: the Extensible has no watcher."""


@final
class Store:
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
        "watch",
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
        # Tells the watchers what has run. Never None: the functions of stages that were open as the last watcher left
        # still call it.
        self.watch: Callable[[Scope, Caller | str], None] = unwatched

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
    def gone(self) -> dict[str, str]:
        """The names of dead fixtures, each with the stage that it ended with."""
        cells = self.cells.items()
        return {name: cell.stage for name, cell in cells if cell.owner is None and cell.stage is not None}

    def absent(self, defaults: Mapping[str, Any], stage: str) -> dict[str, Any]:
        """Return the defaults whose names will not be alive when a stage of this name opens."""
        outer = self.open.get(stage)  # a recursion: the fixtures of the outer stage will be put aside
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
            content = None if scope.hidden is None else scope.hidden.content_of(name)
            if content is not None:
                return content
            scope = scope.parent
        return None

    # ---- errors ------------------------------------------------------------------------------------------------------

    def asked(self, name: str, definer: Definer) -> Asked:
        """Return what all errors about a fixture or a stage have in common: its name, and the caller with its line."""
        at = line_of_definer(definer)
        return {"name": name, "asked_by": name_of(definer), "asked_at": at, "stages": self.path}

    def not_found_error(self, asked: Asked, does: str) -> FixtureNotFound:
        """Make the error for a name that is not alive, which is asked for."""
        return messages.not_found_error(asked, does, self._names(asked["name"]))

    def exists_error(self, name: str, definer: Definer) -> FixtureExists:
        """Make the error for the definition of a name that is alive, or always there."""
        if name in self.always_there:
            return messages.reserved_error(self.asked(name, definer))
        there = self.find_hidden(name) or self.cells[name]  # put aside by a recursion, or alive
        defined_at = line_of_definer(
            there.definer or there.owner.opened_at
        )  # no definer: the line that opened the stage
        return messages.exists_error(self.asked(name, definer), str(there.stage), defined_at)

    def _names(self, name: str) -> Names:
        """Return the names of fixtures, for the error about one of them."""
        is_hidden, words = self.find_hidden(name) is not None, self.options.words
        return Names(self.names(), self.always_there, self.gone, is_hidden, tuple(self.requests), words)

    # ---- changes -----------------------------------------------------------------------------------------------------

    def close_scope(self, scope: Scope) -> None:
        """End the innermost scope: its fixtures die, and the fixtures that it hid are alive again."""
        # Ctrl-C may cut this short at any call, and the scope is then closed once more: each step leaves a state from
        # which that works. So a cell leaves the list before it is emptied, and `cell.empty()` is not called.
        while scope.first is not None:
            cell = scope.first
            scope.first = cell.next  # before the value goes: it may have a finalizer that writes fixtures
            if cell.owner is scope or cell.owner is None:  # another owner: an `@always` hook has defined it anew
                cell.owner = cell.compute = None
                try:  # noqa: SIM105
                    del cell.value
                except AttributeError:  # a lazy fixture was not computed, or the value is gone already
                    pass
        # A recursion ends: the fixtures of the outer stage of the same name come back.
        hidden = scope.hidden
        if hidden is not None:
            hidden.put_back()
            scope.add_extras().hidden = None
        self._note_end(scope)
        self.innermost = scope.parent
        scope.phase = CLOSED

    def _note_end(self, scope: Scope) -> None:
        """Put the next outer stage of the same name, if there is one, back into ``open``."""
        outer = scope.parent
        while outer is not None and outer.name != scope.name:
            outer = outer.parent
        if outer is None:
            self.open.pop(scope.name, None)
        else:
            self.open[scope.name] = outer

    def hide(self, outer: Scope, inner: Scope) -> None:
        """Put the fixtures of the outer stage of a recursion aside, until the inner one closes."""
        hidden = outer.contents()
        inner.add_extras().hidden = hidden
        outer.first = None
        for cell, _ in hidden.contents:
            cell.empty()

    def contents(self) -> list[Hidden]:
        """Return a copy of the cells of all open stages, the innermost first."""
        self.require_own_thread()
        self.open_inner()
        return [scope.contents() for scope in self.scopes()]

    def put_back(self, contents: Collection[Hidden]) -> None:
        """Give the open stages the fixtures that ``contents`` has returned while the same stages were open."""
        for outer, _, _ in contents:
            for cell in outer.cells():
                cell.empty()
        for one in contents:  # only now: a name may have died in one stage since, and be alive in another
            one.put_back()

    def define(self, name: str, value: Any, scope: Scope | None, definer: Definer) -> None:
        """Give a scope a fixture of its own."""
        if self.thread != get_ident():
            self.require_own_thread()
        if scope is None:
            raise messages.no_stage_error(self.asked(name, definer))
        cell = self.cells.get(name) or self.cell(name)
        # A fixture that a recursion inside of `scope` has put aside is alive too: it would come back, and overwrite
        # this one.
        if self.has(name) or (scope is not self.innermost and self.find_hidden(name, scope) is not None):
            raise self.exists_error(name, definer)
        cell.next = scope.first  # `scope.own(cell, definer)`, written out to save a call
        scope.first = cell
        cell.definer = definer
        cell.stage = scope.name
        cell.owner = scope
        cell.value = value

    def define_all(self, values: Mapping[str, Any], definer: Definer) -> None:
        """Give the innermost scope several fixtures."""
        if self.thread != get_ident():
            self.require_own_thread()
        scope = self.innermost
        if scope is None:
            raise messages.no_stage_error(self.asked(next(iter(values), ""), definer))
        if scope.inner_stage is not None:
            self.open_inner()
            return self.define_all(values, definer)
        cells, stage = self.cells, scope.name
        for name in values:
            cell = cells[name] if name in cells else self.cell(name)
            if cell.owner is not None:
                raise self.exists_error(name, definer)
            cell.next = scope.first  # `scope.own(cell, definer)`, written out to save a call
            scope.first = cell
            cell.definer = definer
            cell.stage = stage
            cell.owner = scope
            cell.value = values[name]

    def modify(self, name: str, value: Any, definer: Definer) -> None:
        """Change the value of a live fixture; its owner stays."""
        if self.thread != get_ident():
            self.require_own_thread()
        if self.innermost is None:
            raise messages.no_stage_error(self.asked(name, definer))
        cell = self.cells[name] if self.has(name) else None
        if cell is None:
            raise self.not_found_error(self.asked(name, definer), "modifies")
        if cell.owner is ALWAYS:
            raise messages.reserved_error(self.asked(name, definer))
        if getattr(cell, "given", None) is LIVE:
            raise messages.live_error(self.asked(name, definer), self.options.own_name)
        check = self.options.checks.get((cell.stage, name))
        if check is not None:
            check(value, self.asked(name, self.running or definer))
        if cell.compute is not None:  # a lazy fixture that was not computed: its provider is not called any more
            cell.compute = None
            cell.definer = definer
        cell.value = value

    def provide(self, name: str, value: Any, scope: Scope, definer: Definer) -> None:
        """Define the return value of a hook as a fixture; the hook, or one of the same extension, may renew it."""
        cell = self.cell(name)
        if self.has(name) and cell.owner is scope and _are_of_one(definer, cell.definer):
            cell.definer, cell.compute, cell.value = definer, None, value
        else:
            self.define(name, value, scope, definer)

    def set_failure(self, *failure: Any) -> None:
        """Set the fixtures that say why a stage ends: the type, the error and its traceback, or None three times."""
        for name, value in zip(FAILURE, failure, strict=True):
            self.cells[name].value = value

    def set_computed(self, name: str, value: Any, scope: Scope, definer: Definer) -> None:
        """Write the value of a lazy fixture: from now on it is a fixture as any other."""
        cell = self.cells[name]
        if cell.owner is not scope:  # the cell has lost its owner while the provider ran
            scope.own(cell, definer)
        cell.definer = definer
        cell.compute = None
        cell.value = value

    def require_life(self, name: str, scope: Scope, caller: Caller) -> None:
        """Refuse that a lazy fixture of ``scope`` is computed from a fixture that dies before it."""
        owner = self.owner_of(name)
        if owner is not None and owner.depth > scope.depth:
            raise messages.shorter_lived_error(self.asked(name, caller), scope.name, owner.name, self._names(name))

    def require_own_thread(self) -> None:
        """Refuse another thread than the one that opened the stages."""
        if self.thread != get_ident() and self.innermost is not None:
            raise messages.other_thread_error("" if self.running is None else self.running.label)

    def require_open(self, stage: str, definer: Definer) -> Scope:
        """Return the innermost open scope of this name; refuse a stage that is not open."""
        if stage in self.path:
            self.open_inner()
        scope = self.open.get(stage)
        if scope is None:
            raise messages.not_open_error(self.asked(stage, definer), self.options.words)
        return scope

    def require_declared(self, name: str, site: Definer) -> None:
        """Refuse, if ``strict`` is set, that a hook writes a fixture that it does not declare."""
        if self.strict and self.running is not None and name not in self.running.written:
            decorator = "modifies" if self.has(name) else "provides"
            asked = self.asked(name, site)
            asked["asked_by"] = self.running.label
            raise messages.undeclared_error(asked, f'@{decorator}("{name}")')


def _are_of_one(definer: Definer, other: Definer) -> bool:
    """Return whether two definers are the same, or hooks and providers of one extension."""
    both = isinstance(definer, Caller) and isinstance(other, Caller) and definer.owner == other.owner != ""
    return definer is other or both
