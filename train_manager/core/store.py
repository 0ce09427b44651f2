"""All changes of the state: scopes close, fixtures are defined, modified, promised.

``Stage`` opens scopes, and closes them here; ``Fixtures`` is the face that users see.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, final
from weakref import ref

from train_manager.core import affinity, messages
from train_manager.core.scope import CLOSED, OPEN_WITH_MORE, Caller, Definer, Hidden, Scope
from train_manager.core.state import FAILURE, Promise, State


@final
class Store(State):
    """The state, and what may be done to it."""

    __slots__ = ()

    # ---- scopes ------------------------------------------------------------------------------------------------

    def close_scope(self, scope: Scope) -> None:
        """End the innermost scope: its fixtures die, what it hid is back.

        Until the last steps it can be done again: Ctrl-C may have cut it short.
        """
        while scope.first is not None:
            cell = scope.first
            scope.first = cell.next  # before the value goes, which may have a finalizer that writes fixtures
            if cell.owner is scope or cell.owner is None:  # not where an `@always` hook has defined it anew
                cell.owner = cell.promise = None  # written out: Ctrl-C comes at calls
                try:  # noqa: SIM105
                    del cell.value
                except AttributeError:  # it was not computed, or is gone already
                    pass
        if scope.hidden is not None:
            self._unhide(scope.hidden, scope.same_name)
            scope.hidden = None
        place = self.places[scope.name]
        if place.stage is scope:
            place.stage = None
        self.innermost = scope.parent
        scope.phase = CLOSED

    def put_aside(self, outer: Scope, inner: Scope) -> None:
        """Hide what the outer stage of a recursion owns, until the inner one closes."""
        inner.phase = OPEN_WITH_MORE
        inner.same_name = outer
        inner.hidden = Hidden(outer.first, tuple((cell, cell.content()) for cell in outer.cells()))
        outer.first = None
        for cell, _ in inner.hidden.contents:
            cell.empty()

    def _unhide(self, hidden: Hidden, outer: Scope | None) -> None:
        assert outer is not None, "it has hidden something"
        for cell, content in hidden.contents:
            cell.restore(content)
        outer.first = hidden.first

    # ---- values ------------------------------------------------------------------------------------------------

    def define(self, name: str, value: Any, scope: Scope | None, definer: Definer) -> None:
        """Give a scope a fixture of its own.

        Raises:
            FixtureExists: the name is alive, or always there.
            NoStageOpen: there is no scope.
        """
        if not self.lock._is_owned():
            self.require_own_strand()
        if scope is None:
            raise messages.no_stage(self, name, definer)
        cell = self.cell(name)
        if cell.owner is not None or (scope is not self.innermost and self.hidden(name, scope) is not None):
            raise messages.exists(self, name, definer)
        scope.own(cell, definer)
        cell.value = value

    def modify(self, name: str, value: Any, definer: Definer) -> None:
        """Change a live fixture; its owner stays.

        Raises:
            FixtureNotFound: it is not alive.
            FixtureExists: it is always there.
            NoStageOpen: no stage is open.
        """
        self.require_own_strand()
        if self.innermost is None:
            raise messages.no_stage(self, name, definer)
        if name in self.always_there:
            raise messages.reserved(self, name, definer)
        owner = self.owner_of(name)
        if owner is None:
            raise messages.not_found(self, name, f"{messages.who(definer)} modifies", messages.where(definer))
        if self.cells[name].promise is None:
            self.cells[name].value = value
        else:  # then nobody need compute it any more
            self.fulfil(name, value, owner, definer)

    def provide(self, name: str, value: Any, scope: Scope, definer: Definer) -> None:
        """Define a fixture, or renew it where the same hook has defined it before in the same open stage."""
        cell = self.cell(name)
        if cell.owner is scope and cell.definer is definer:
            cell.value = value
        else:
            self.define(name, value, scope, definer)

    def tell_failure(self, *failure: Any) -> None:
        """Say to ``@always`` hooks why the stage ends: type, error and traceback, or None three times."""
        for name, value in zip(FAILURE, failure, strict=True):
            self.cells[name].value = value

    # ---- provided fixtures ---------------------------------------------------------------------------------------

    def promise(self, scope: Scope, promises: Mapping[str, Promise]) -> None:
        """Let fixtures be computed on demand, as long as the scope is open.

        Raises:
            FixtureExists: a name is alive already.
        """
        for name, promise in promises.items():
            if self.has(name):
                raise messages.exists(self, name, promise.provider)
        for name, promise in promises.items():
            cell = self.cell(name)
            scope.own(cell, promise.provider)
            cell.promise = promise

    def fulfil(self, name: str, value: Any, scope: Scope, definer: Definer) -> None:
        """Keep a promise: the value is a fixture of its scope now."""
        cell = self.cells[name]
        if cell.owner is not scope:
            scope.own(cell, definer)
        cell.definer = definer
        cell.promise = None
        cell.value = value

    @contextmanager
    def asking(self, request: str, caller: Caller) -> Iterator[None]:
        """While a provider is being computed; an error can then tell the chain of requests."""
        before, self.running = self.running, caller
        asker = [f"{before.label} ({before.call.defined_at})"] if before is not None and not self.requests else []
        depth = len(self.requests)
        self.requests += [*asker, request]
        try:
            yield
        except BaseException as error:
            error.add_note(f"in fixture {request}")
            raise
        finally:
            del self.requests[depth:]
            self.running = before

    def require_life(self, name: str, scope: Scope, caller: Caller) -> None:
        """Refuse that something owned by ``scope`` is made of what dies before it.

        Raises:
            FixtureNotFound: the name belongs to a stage inside ``scope``.
        """
        owner = self.owner_of(name)
        if owner is not None and owner.depth > scope.depth:
            raise messages.shorter_lived(self, name, owner, scope, caller)

    # ---- who may touch it ------------------------------------------------------------------------------------------

    def require_own_strand(self) -> None:
        """Refuse another thread or task than the one that opened the stages.

        Raises:
            StageError: it is another one.
        """
        if self.lock._is_owned() or self.innermost is None:
            return  # as nearly always
        owner = None if self.task is None else self.task()
        if owner is None or owner is not affinity.current_task():
            raise messages.other_strand(self)

    def take_strand(self, *, awaits: bool) -> None:
        """The outermost stage belongs to whoever opens it; the others must be opened by the same.

        Args:
            awaits: a coroutine opens it.

        Raises:
            StageError: another thread or task has opened the outermost stage.
        """
        task = affinity.current_task()
        if self.innermost is not None:
            self.require_own_strand()
            if awaits and task is not None and self.task is None:  # inside a plain function's stage: others may be, too
                raise messages.other_strand(self)
            return
        self.lock = affinity.lock_of_this_thread() if task is None else affinity.lock_of_nobody()
        self.task = None if task is None else ref(task)

    def require_declared(self, name: str, site: Definer) -> None:
        """With ``strict``, refuse a hook's write of what it does not declare.

        Raises:
            HookError: naming the hook and the decorator it lacks.
        """
        if self.strict and self.running is not None and name not in self.running.written:
            raise messages.undeclared(self, name, self.running, site)
