"""The fixtures that are alive: one flat dict of values, and who owns which name.

A read is one dict look-up however deep the stages nest. ``Stage`` opens and closes scopes here; users and hooks
see the mapping.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from typing import Any, final

from train_manager.core.errors import (
    FixtureExists,
    FixtureNotFound,
    NoStageOpen,
    StageError,
    did_you_mean,
    near,
)
from train_manager.core.scope import Scope, strand
from train_manager.core.source import Site, line_of, site_of

FAILURE = ("exc_type", "exc_value", "traceback")
"""For ``@always`` hooks: why the stage ends; None while nothing has failed."""

ALWAYS_THERE = ("fixtures", "stage", *FAILURE)
"""Names that nobody may define; an Extensible adds its own."""


@final
class Fixtures(Mapping[str, Any]):
    """What is alive now: reads like a dict, and each write says what it means to do.

    >>> from train_manager import Extensible
    >>> class Counter(Extensible):
    ...     def count(self):
    ...         with self.staged("count", {"start": 1}):
    ...             self.fixtures["end"] = 3              # define: this stage owns it
    ...             self.fixtures.modify("start", 2)      # change a live one; its owner stays
    ...             print(dict(self.fixtures))
    >>> counter = Counter()
    >>> counter.count()
    {'start': 2, 'end': 3}
    >>> dict(counter.fixtures)
    {}

    Iteration, ``len`` and ``dict(...)`` leave out what is always there (``fixtures``, ``stage``, ``extensible``);
    reading and ``in`` know it.

    Raises:
        FixtureNotFound: a name is read or modified that is not alive.
        FixtureExists: a live name is defined again, or one that is always there is written.
        NoStageOpen: something is written while no stage is open.
        StageError: another thread or task than the one that opened the stages touches them.
    """

    __slots__ = (
        "__weakref__",
        "_innermost",
        "_opened",
        "_strand",
        "_took",
        "alive",
        "always_there",
        "running",
    )

    def __init__(self, **always: Any) -> None:
        self.alive: dict[str, Any] = {"fixtures": self, "stage": None, **dict.fromkeys(FAILURE), **always}
        self.running = ""  # the hook that is being called
        self.always_there = frozenset(self.alive)
        self._innermost: Scope | None = None
        self._opened: dict[str, Scope] = {}  # stage name -> the innermost open one of that name
        self._took: dict[str, str] = {}  # name that is no more -> the stage that took it along
        self._strand: tuple[int, object] | None = None  # who opened the outermost stage

    # ---- reading ---------------------------------------------------------------------------------------------

    def __getitem__(self, name: str) -> Any:
        self.require_own_strand()
        try:
            return self.alive[name]
        except KeyError:
            frame = sys._getframe(1)
            raise self.not_found(name, f"{frame.f_code.co_qualname} reads", line_of(site_of(frame))) from None

    def get(self, name: str, default: Any = None) -> Any:
        """The fixture's value, or ``default`` where it is not alive."""
        self.require_own_strand()
        return self.alive.get(name, default)

    def __contains__(self, name: object) -> bool:
        self.require_own_strand()
        return name in self.alive

    def __iter__(self) -> Iterator[str]:
        self.require_own_strand()
        return iter([name for name in self.alive if name not in self.always_there])

    def __len__(self) -> int:
        return len(self.alive) - len(self.always_there)

    def __repr__(self) -> str:
        return f"<fixtures {', '.join(self) or 'none'}>"

    # ---- writing ---------------------------------------------------------------------------------------------

    def __setitem__(self, name: str, value: Any) -> None:
        self._define(name, value, self._innermost, site_of(sys._getframe(1)))

    def define(self, name: str, value: Any, stage: str | None = None) -> None:
        """Define a fixture in the innermost stage, or in the open stage of that name around it.

        Raises:
            StageError: no stage of that name is open.
        """
        site = site_of(sys._getframe(1))
        self._define(name, value, self._innermost if stage is None else self._open_stage(stage, site), site)

    def modify(self, name: str, value: Any) -> None:
        """Change a live fixture; it lives on as long as the stage that owns it."""
        self._modify(name, value, site_of(sys._getframe(1)))

    def update(self, values: Mapping[str, Any]) -> None:
        """Modify what is alive and define the rest in the innermost stage; all of it, or, on an error, nothing."""
        site = site_of(sys._getframe(1))
        for name in values:
            if name in self.always_there:
                raise self._reserved(name, site)
        for name, value in values.items():
            if name in self.alive:
                self._modify(name, value, site)
            else:
                self._define(name, value, self._innermost, site)

    def setdefault(self, name: str, default: Any = None) -> Any:
        """The live fixture's value; where there is none, define it as ``default`` first."""
        if name not in self:
            self._define(name, default, self._innermost, site_of(sys._getframe(1)))
        return self.alive[name]

    def _define(self, name: str, value: Any, scope: Scope | None, site: Site) -> None:
        self.require_own_strand()
        if scope is None:
            raise self._no_stage(name, site)
        if name in self.alive or (scope is not self._innermost and self._is_hidden(name, scope)):
            raise self._exists(name, site)
        self.alive[name] = value
        scope.owned[name] = site

    def _modify(self, name: str, value: Any, site: Site) -> None:
        self.require_own_strand()
        if self._innermost is None:
            raise self._no_stage(name, site)
        if name in self.always_there:
            raise self._reserved(name, site)
        if name not in self.alive:
            raise self.not_found(name, f"{site[0].co_qualname} modifies", line_of(site))
        self.alive[name] = value

    # ---- scopes: called by Stage -----------------------------------------------------------------------------

    @property
    def innermost(self) -> Scope | None:
        """The innermost open scope."""
        return self._innermost

    @property
    def path(self) -> tuple[str, ...]:
        """Names of the open stages, outermost first."""
        return self._innermost.path if self._innermost else ()

    def open_scope(self, scope: Scope, given: Mapping[str, Any] | None, defaults: Mapping[str, Any] | None) -> None:
        """Make ``scope`` the innermost and define its first fixtures; on an error nothing has changed."""
        self.require_own_strand()
        scope.parent = self._innermost
        scope.depth = scope.parent.depth + 1 if scope.parent else 1
        scope.same_name = self._opened.get(scope.name)
        if scope.same_name is not None:
            scope.hidden = {name: self.alive[name] for name in scope.same_name.owned}
        try:
            if scope.parent is None:
                self._strand = strand()
            self._innermost = self.alive["stage"] = self._opened[scope.name] = scope
            scope.is_open = True
            for name in scope.hidden:
                del self.alive[name]
            for name, value in (given or {}).items():
                self._define(name, value, scope, scope.opened_at)
            for name, value in (defaults or {}).items():
                if name not in self.alive:
                    self._define(name, value, scope, scope.opened_at)
        except BaseException:
            self.close_scope(scope)
            raise

    def close_scope(self, scope: Scope) -> None:
        """End the innermost scope: its fixtures die, what it hid is back.

        Until the last steps it can be done again: Ctrl-C may have cut it short.
        """
        for name in scope.owned:
            self.alive.pop(name, None)
            self._took[name] = scope.name
        self.alive.update(scope.hidden)
        if scope.same_name is None:
            self._opened.pop(scope.name, None)
        else:
            self._opened[scope.name] = scope.same_name
        if scope.parent is None:
            self._strand = None
        scope.is_open = False
        self._innermost = self.alive["stage"] = scope.parent
        scope.hidden = {}
        scope.same_name = None

    def _open_stage(self, stage: str, site: Site) -> Scope:
        """The innermost open stage of this name."""
        try:
            return self._opened[stage]
        except KeyError:
            nearest = near(stage, self._opened)
            raise StageError(
                f"{site[0].co_qualname} defines a fixture in stage {stage!r}, which is not open",
                name=stage,
                asked_by=site[0].co_qualname,
                asked_at=line_of(site),
                stages=self.path,
                nearest=nearest,
                cure=did_you_mean(nearest),
            ) from None

    def _is_hidden(self, name: str, owner: Scope | None) -> bool:
        """Whether a recursion inside ``owner`` (None: anywhere) has put this name aside: it will be back."""
        scope = self._innermost
        while scope is not None and scope is not owner:
            if name in scope.hidden:
                return True
            scope = scope.parent
        return False

    # ---- errors ----------------------------------------------------------------------------------------------

    def not_found(self, name: str, who_does: str, asked_at: str) -> FixtureNotFound:
        """The error for a name that is not alive: never there (then: nearest names), or taken along by its stage."""
        asked_by = who_does.rpartition(" ")[0]
        alive = tuple(self)
        nearest = near(name, [*alive, *self._took])
        if name in self._took and not self._is_hidden(name, None):
            what = f"{who_does} {name!r}, which ended with stage {self._took[name]!r}"
            cure = f"ask for it inside stage {self._took[name]!r}, or define it in a stage around both"
        elif self._is_hidden(name, None):
            what = f"{who_does} {name!r}, which the inner stage of a recursion hides"
            cure = "it is back when the inner stage ends; hand it down with `staged(name, {...})`"
        else:
            what = f"{who_does} {name!r}, which no open stage provides"
            cure = self._did_you_mean(nearest)
        return FixtureNotFound(
            what,
            name=name,
            asked_by=asked_by,
            asked_at=asked_at,
            stages=self.path,
            alive=alive,
            nearest=nearest,
            cure=cure,
        )

    def _did_you_mean(self, nearest: tuple[str, ...]) -> str:
        if not nearest:
            return "no stage has defined it so far; a parameter with a default may be absent"
        gone = nearest[0] not in self.alive
        lived = f" it lived in stage {self._took[nearest[0]]!r}, which has closed" if gone else ""
        return did_you_mean(nearest) + lived

    def _exists(self, name: str, site: Site) -> FixtureExists:
        if name in self.always_there:
            return self._reserved(name, site)
        owner = self._innermost
        while owner is not None and name not in owner.owned:
            owner = owner.parent
        assert owner is not None, "every live name has an owner"
        return FixtureExists(
            f"{site[0].co_qualname} defines {name!r}, which stage {owner.name!r} has defined already",
            name=name,
            asked_by=site[0].co_qualname,
            asked_at=line_of(site),
            defined_at=line_of(owner.owned[name]),
            stages=self.path,
            cure=f"to change it: fixtures.modify({name!r}, value); for a value of your own: another name",
        )

    def _reserved(self, name: str, site: Site) -> FixtureExists:
        return FixtureExists(
            f"{site[0].co_qualname} writes {name!r}, which is always there and cannot be written",
            name=name,
            asked_by=site[0].co_qualname,
            asked_at=line_of(site),
            stages=self.path,
            cure="take another name",
        )

    def _no_stage(self, name: str, site: Site) -> NoStageOpen:
        return NoStageOpen(
            f"{site[0].co_qualname} writes {name!r} while no stage is open",
            name=name,
            asked_by=site[0].co_qualname,
            asked_at=line_of(site),
            stages=(),
            cure="a fixture lives as long as its stage: write it inside `with self.staged(...):`",
        )

    def require_own_strand(self) -> None:
        if self._strand is not None and self._strand != strand():
            raise StageError(
                "stages were touched by another thread or task than the one that opened them",
                asked_by=self.running,
                cure="use one Extensible for each thread or task, or hand the values over as arguments",
            )
