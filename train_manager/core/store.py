"""All changes of the state: scopes close; fixtures are defined, modified, computed.

``Stage`` opens scopes itself, and closes them by ``Store.close_scope``; users write fixtures by ``Fixtures``.
"""

from __future__ import annotations

from collections.abc import Mapping
from threading import get_ident
from typing import Any, final

from train_manager.core import messages
from train_manager.core.scope import CLOSED, LIVE, Caller, Definer, Hidden, Scope
from train_manager.core.state import ALWAYS, FAILURE, State


@final
class Store(State):
    """The state with its changes; it adds no attribute."""

    __slots__ = ()

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
        if scope.extras is not None and scope.extras.hidden is not None:
            hidden = scope.extras.hidden
            for cell, content in hidden.contents:
                cell.restore(content)
            hidden.outer.first = hidden.first
            scope.extras.hidden = None
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
        hidden = Hidden(outer, outer.first, tuple((cell, cell.content()) for cell in outer.cells()))
        inner.add_extras().hidden = hidden
        outer.first = None
        for cell, _ in hidden.contents:
            cell.empty()

    def define(self, name: str, value: Any, scope: Scope | None, definer: Definer) -> None:
        """Give a scope a fixture of its own."""
        if self.thread != get_ident():
            self.require_own_thread()
        if scope is None:
            raise messages.no_stage_error(self, name, definer)
        cell = self.cells.get(name) or self.cell(name)
        # A fixture that a recursion inside of `scope` has put aside is alive too: it would come back, and overwrite
        # this one.
        if self.has(name) or (scope is not self.innermost and self.find_hidden(name, scope) is not None):
            raise messages.exists_error(self, name, definer)
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
            raise messages.no_stage_error(self, next(iter(values), ""), definer)
        if scope.inner_stage is not None:
            self.open_inner()
            return self.define_all(values, definer)
        cells, stage = self.cells, scope.name
        for name in values:
            cell = cells[name] if name in cells else self.cell(name)
            if cell.owner is not None:
                raise messages.exists_error(self, name, definer)
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
            raise messages.no_stage_error(self, name, definer)
        cell = self.cells[name] if self.has(name) else None
        if cell is None:
            raise messages.not_found_error(self, name, f"{messages.who(definer)} modifies", messages.where(definer))
        if cell.owner is ALWAYS:
            raise messages.reserved_error(self, name, definer)
        if getattr(cell, "given", None) is LIVE:
            raise messages.live_error(self, name, definer)
        check = self.options.checks.get((cell.stage, name))
        if check is not None:
            check(value, messages.error_data(self, name, self.running or definer))
        if cell.compute is not None:  # a lazy fixture that was not computed: its provider is not called any more
            cell.compute = None
            cell.definer = definer
        cell.value = value

    def provide(self, name: str, value: Any, scope: Scope, definer: Definer) -> None:
        """Define the return value of a hook as a fixture, or renew the fixture if ``Scope.may_renew`` allows it."""
        cell = self.cell(name)
        if self.has(name) and cell.owner is scope and scope.may_renew(cell, definer):
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
            raise messages.shorter_lived_error(self, name, owner, scope, caller)

    def require_own_thread(self) -> None:
        """Refuse another thread than the one that opened the stages."""
        if self.thread != get_ident() and self.innermost is not None:
            raise messages.other_thread_error(self)

    def require_open(self, stage: str, definer: Definer) -> Scope:
        """Return the innermost open scope of this name; refuse a stage that is not open."""
        if stage in self.path:
            self.open_inner()
        scope = self.scope_of(stage)
        if scope is None:
            raise messages.not_open_error(self, stage, definer)
        return scope

    def require_declared(self, name: str, site: Definer) -> None:
        """Refuse, if ``strict`` is set, that a hook writes a fixture that it does not declare."""
        if self.strict and self.running is not None and name not in self.running.written:
            raise messages.undeclared_error(self, name, self.running, site)
