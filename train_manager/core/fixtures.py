"""The fixtures as users and hooks see them: a mapping of live names to values, with one method per kind of write."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from sys import _getframe
from threading import get_ident
from typing import Any, final

from train_manager.core import messages
from train_manager.core.store import Store
from train_manager.telling.source_locations import site_of


@final
class Fixtures(Mapping[str, Any]):
    """The live fixtures: they read like a dict, and each write says what it means to do.

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

    Iteration, ``len`` and ``dict(...)`` leave out the names that are always there (``fixtures``, ``stage``,
    ``extensible``); reading and ``in`` know them.

    Raises:
        FixtureNotFound: a name that is read or modified is not alive.
        FixtureExists: a name that is defined is alive already, or is always there.
        NoStageOpen: a name is written while no stage is open.
        StageError: another thread than the one that opened the stages touches them.
        HookError: a hook writes what it does not declare, although the Extensible is ``strict``.
    """

    __slots__ = ("__weakref__", "_store")

    def __init__(self, store: Store) -> None:
        self._store = store

    def __getitem__(self, name: str) -> Any:
        store = self._store
        if store.thread != get_ident():
            store.require_own_thread()
        # Most reads end here: the fixture is alive, and its cell has a value.
        try:
            return store.cells[name].value
        except (KeyError, AttributeError):  # no such cell; or one without a value: dead, or lazy
            pass  # the rest is outside of `except`, so that a FixtureNotFound does not show the KeyError above itself
        if store.has(name):
            return store.value(name)
        site = site_of(_getframe(1))
        raise store.not_found_error(store.asked(name, site), "reads")

    def get(self, name: str, default: Any = None) -> Any:
        """Return the fixture's value, or ``default`` if it is not alive."""
        store = self._store
        if store.thread != get_ident():
            store.require_own_thread()
        try:
            return store.cells[name].value  # as in `__getitem__`
        except (KeyError, AttributeError):
            pass
        return store.value(name) if store.has(name) else default

    def __contains__(self, name: object) -> bool:
        store = self._store
        if store.thread != get_ident():
            store.require_own_thread()
        return store.has(name)

    def __iter__(self) -> Iterator[str]:
        self._store.require_own_thread()
        return iter(self._store.names())

    def __len__(self) -> int:
        self._store.require_own_thread()
        return len(self._store.names())

    @property
    def path(self) -> tuple[str, ...]:
        """Names of the open stages, outermost first; empty if none is open."""
        return self._store.path

    def __repr__(self) -> str:
        return f"<fixtures {', '.join(self._store.names()) or 'none'}>"

    def _ipython_key_completions_(self) -> list[str]:
        """Return the names that IPython offers after ``fixtures["<TAB>``."""
        return [*self._store.names()]

    # Each of the methods below notes the line of its caller: an error about the fixture names it as the definer.

    def define(self, name: str, value: Any, stage: str | None = None) -> None:
        """Define a fixture in the innermost stage, or in the open stage of that name around it.

        Raises:
            StageError: no stage of that name is open.
        """
        store, frame = self._store, _getframe(1)
        site = frame.f_code, frame.f_lasti  # `site_of`, without a call: a loop defines fixtures in each step
        if store.strict:
            store.require_declared(name, site)
        scope = store.to_write() if stage is None else store.open.get(stage) or store.require_open(stage, site)
        store.define(name, value, scope, site)

    __setitem__ = define

    def define_all(self, values: Mapping[str, Any]) -> None:
        """Define several fixtures in the innermost stage, in one call."""
        store, frame = self._store, _getframe(1)
        site = frame.f_code, frame.f_lasti
        if store.strict:
            for name in values:
                store.require_declared(name, site)
        store.define_all(values, site)

    def modify(self, name: str, value: Any) -> None:
        """Change a live fixture; it lives on as long as the stage that owns it."""
        store, frame = self._store, _getframe(1)
        site = frame.f_code, frame.f_lasti
        if store.strict:
            store.require_declared(name, site)
        store.modify(name, value, site)

    def update(self, values: Mapping[str, Any]) -> None:
        """Modify the live fixtures and define the rest in the innermost stage; on an error, nothing is written."""
        store, site = self._store, site_of(_getframe(1))
        for name in values:  # all refusals come before the first write
            if name in store.always_there:
                raise messages.reserved_error(store.asked(name, site))
            store.require_declared(name, site)
        for name, value in values.items():
            if name in self:
                store.modify(name, value, site)
            else:
                store.define(name, value, store.to_write(), site)

    def setdefault(self, name: str, default: Any = None) -> Any:
        """Return the live fixture's value; if there is none, define it as ``default`` first."""
        store, site = self._store, site_of(_getframe(1))
        if name not in self:
            store.require_declared(name, site)
            store.define(name, default, store.to_write(), site)
        return store.value(name)
