"""The fixtures as users and hooks see them: a mapping of what is alive, with a word for each kind of write."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from types import FrameType
from typing import Any, final

from train_manager.core import messages
from train_manager.core.locations import site_of
from train_manager.core.state import ALWAYS
from train_manager.core.store import Store


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
        HookError: a hook writes what it does not declare, where the Extensible is ``strict``.
    """

    __slots__ = ("__weakref__", "_store")

    def __init__(self, store: Store) -> None:
        self._store = store

    # ---- reading -----------------------------------------------------------------------------------------------

    def __getitem__(self, name: str) -> Any:
        store = self._store
        if not store.lock._is_owned():
            store.require_own_strand()
        try:
            return store.cells[name].value
        except (KeyError, AttributeError):
            pass
        if store.has(name):
            return store.value(name)
        site = site_of(sys._getframe(1))
        raise messages.not_found(store, name, f"{messages.who(site)} reads", messages.where(site))

    def get(self, name: str, default: Any = None) -> Any:
        """The fixture's value, or ``default`` where it is not alive."""
        return self._store.value(name) if name in self else default

    def __contains__(self, name: object) -> bool:
        self._store.require_own_strand()
        return self._store.has(name)

    def __iter__(self) -> Iterator[str]:
        self._store.require_own_strand()
        return iter(self._store.names())

    def __len__(self) -> int:
        self._store.require_own_strand()
        return len(self._store.names())

    @property
    def path(self) -> tuple[str, ...]:
        """Names of the open stages, outermost first; empty where none is open."""
        return self._store.path

    def __repr__(self) -> str:
        return f"<fixtures {', '.join(self) or 'none'}>"

    # ---- writing -----------------------------------------------------------------------------------------------

    def __setitem__(self, name: str, value: Any) -> None:
        store, frame = self._store, sys._getframe(1)
        scope = store.innermost
        try:
            cell = store.cells[name]
        except KeyError:
            cell = store.cell(name)
        if scope is None or store.running is not None or cell.owner is not None or not store.lock._is_owned():
            self._define(name, value, None, frame)
        else:  # what it does, written out
            scope.own(cell, (frame.f_code, frame.f_lasti))
            cell.value = value

    def define(self, name: str, value: Any, stage: str | None = None) -> None:
        """Define a fixture in the innermost stage, or in the open stage of that name around it.

        Raises:
            StageError: no stage of that name is open.
        """
        store, frame = self._store, sys._getframe(1)
        scope = store.innermost
        if stage is not None and scope is not None:  # nearly always the next one around
            scope = scope.parent if scope.hidden is None else None
        try:
            cell = store.cells[name]
        except KeyError:
            cell = store.cell(name)
        if (
            scope is None
            or (stage is not None and scope.name != stage)
            or store.running is not None
            or cell.owner is not None
            or not store.lock._is_owned()
        ):
            self._define(name, value, stage, frame)
        else:  # what it does, written out
            scope.own(cell, (frame.f_code, frame.f_lasti))
            cell.value = value

    def modify(self, name: str, value: Any) -> None:
        """Change a live fixture; it lives on as long as the stage that owns it."""
        store = self._store
        cell = store.cells.get(name)
        if (
            cell is not None
            and cell.owner is not None
            and cell.owner is not ALWAYS
            and cell.promise is None
            and store.running is None
            and store.lock._is_owned()
        ):
            cell.value = value  # what it does, written out
        else:
            self._modify(name, value, sys._getframe(1))

    def update(self, values: Mapping[str, Any]) -> None:
        """Modify what is alive and define the rest in the innermost stage; all of it, or, on an error, nothing."""
        frame = sys._getframe(1)
        for name in values:
            if name in self._store.always_there:
                raise messages.reserved(self._store, name, site_of(frame))
            self._store.require_declared(name, site_of(frame))
        for name, value in values.items():
            if name in self:
                self._modify(name, value, frame)
            else:
                self._define(name, value, None, frame)

    def setdefault(self, name: str, default: Any = None) -> Any:
        """The live fixture's value; where there is none, define it as ``default`` first."""
        if name not in self:
            self._define(name, default, None, sys._getframe(1))
        return self._store.value(name)

    def _define(self, name: str, value: Any, stage: str | None, frame: FrameType) -> None:
        store, site = self._store, (frame.f_code, frame.f_lasti)
        if store.strict:
            store.require_declared(name, site)
        scope = store.innermost if stage is None else store.scope_of(stage)
        if stage is not None and scope is None:
            raise messages.not_open(store, stage, site)
        store.define(name, value, scope, site)

    def _modify(self, name: str, value: Any, frame: FrameType) -> None:
        site = site_of(frame)
        self._store.require_declared(name, site)
        self._store.modify(name, value, site)
