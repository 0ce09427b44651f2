"""All changes of the state: scopes close, fixtures are defined, modified, promised.

``Stage`` opens scopes, and closes them here; ``Fixtures`` is the face that users see.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, final
from weakref import ref

from train_manager.core import refusals, strand
from train_manager.core.scope import CLOSED, OPEN_WITH_MORE, Caller, Definer, Scope
from train_manager.core.state import Promised, State


@final
class Store(State):
    """The state, and what may be done to it."""

    __slots__ = ()

    # ---- scopes ------------------------------------------------------------------------------------------------

    def close_scope(self, scope: Scope) -> None:
        """End the innermost scope: its fixtures die, what it hid is back.

        Until the last steps it can be done again: Ctrl-C may have cut it short.
        """
        place = self.places[scope.name]
        for name in scope.owned:
            self.alive.pop(name, None)
        place.left = scope.owned or place.left
        if scope.promised:
            self._break_promises(scope)
        if scope.same_name is not None:
            self._unhide(scope)
        if place.open is scope:
            place.open = scope.same_name
        self.innermost = scope.parent
        scope.phase = CLOSED

    def put_aside(self, outer: Scope, inner: Scope) -> None:
        """Hide what the outer stage of a recursion owns, until the inner one closes."""
        inner.phase = OPEN_WITH_MORE
        inner.same_name = outer
        inner.hidden = {name: self.alive[name] for name in outer.owned}
        inner.hidden_promised = {n: self.promised[n] for n in outer.promised if n in self.promised}
        for name in inner.hidden:
            del self.alive[name]
        for name in inner.hidden_promised:
            del self.promised[name]

    def _unhide(self, scope: Scope) -> None:
        self.alive.update(scope.hidden)
        self.promised.update(scope.hidden_promised)
        scope.hidden = scope.hidden_promised = {}

    def _break_promises(self, scope: Scope) -> None:
        for name in scope.promised:
            self.promised.pop(name, None)
            scope.own(name, scope.definer_of(name))  # so that an error can say where it lived

    # ---- values ------------------------------------------------------------------------------------------------

    def define(self, name: str, value: Any, scope: Scope | None, definer: Definer) -> None:
        """Give a scope a fixture of its own.

        Raises:
            FixtureExists: the name is alive, or always there.
            NoStageOpen: there is no scope.
        """
        if not self.is_own():
            self.require_own_strand()
        if scope is None:
            raise refusals.no_stage(self, name, definer)
        hidden = scope is not self.innermost and self.is_hidden(name, scope)
        if hidden or name in self.alive or name in self.promised:
            raise refusals.exists(self, name, definer)
        scope.own(name, definer)
        self.alive[name] = value

    def modify(self, name: str, value: Any, definer: Definer) -> None:
        """Change a live fixture; its owner stays.

        Raises:
            FixtureNotFound: it is not alive.
            FixtureExists: it is always there.
            NoStageOpen: no stage is open.
        """
        self.require_own_strand()
        if self.innermost is None:
            raise refusals.no_stage(self, name, definer)
        if name in self.always_there:
            raise refusals.reserved(self, name, definer)
        if name in self.alive:
            self.alive[name] = value
        elif name in self.promised:  # then nobody need compute it any more
            self.fulfil(name, value, self.promised[name].scope, definer)
        else:
            raise refusals.not_found(self, name, f"{refusals.who(definer)} modifies", refusals.where(definer))

    def provide(self, name: str, value: Any, scope: Scope, definer: Definer) -> None:
        """Define a fixture, or renew it where the same hook has defined it before in the same open stage."""
        if name in self.alive and scope.definer_of(name) is definer:
            self.alive[name] = value
        else:
            self.define(name, value, scope, definer)

    # ---- provided fixtures ---------------------------------------------------------------------------------------

    def promise(self, scope: Scope, promises: Mapping[str, Promised]) -> None:
        """Let fixtures be computed on demand, as long as the scope is open.

        Raises:
            FixtureExists: a name is alive already.
        """
        for name, promised in promises.items():
            if self.has(name):
                raise refusals.exists(self, name, promised.provider)
        self.promised.update(promises)
        scope.promised = tuple(promises)

    def fulfil(self, name: str, value: Any, scope: Scope, definer: Definer) -> None:
        """Keep a promise: the value is a fixture of its scope now."""
        self.promised.pop(name, None)  # it is gone where the provider has written it itself
        self.alive[name] = value
        scope.own(name, definer)

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
            raise refusals.shorter_lived(self, name, owner, scope, caller)

    # ---- who may touch it ------------------------------------------------------------------------------------------

    def require_own_strand(self) -> None:
        """Refuse another thread or task than the one that opened the stages.

        Raises:
            StageError: it is another one.
        """
        if self.is_own() or self.innermost is None:
            return  # as nearly always
        owner = None if self.task is None else self.task()
        if owner is None or owner is not strand.current_task():
            raise refusals.other_strand(self)

    def take_strand(self) -> None:
        """The outermost stage belongs to whoever opens it; the others must be opened by the same.

        Raises:
            StageError: another thread or task has opened the outermost stage.
        """
        task = strand.current_task()
        if self.innermost is not None:
            self.require_own_strand()
            if task is not None and self.task is None:  # a task inside a stage that none has opened: there may be more
                raise refusals.other_strand(self)
            return
        self.is_own = strand.own_thread() if task is None else strand.nobody
        self.task = None if task is None else ref(task)

    def require_declared(self, name: str, site: Definer) -> None:
        """With ``strict``, refuse a hook's write of what it does not declare.

        Raises:
            HookError: naming the hook and the decorator it lacks.
        """
        if self.strict and self.running is not None and name not in self.running.written:
            raise refusals.undeclared(self, name, self.running, site)
