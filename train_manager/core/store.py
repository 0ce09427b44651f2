"""All changes of the state: scopes close; fixtures are defined, modified, computed.

``Stage`` opens scopes, and closes them here; ``Fixtures`` is what users see.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from threading import get_ident
from typing import Any, final
from weakref import ref

from train_manager.core import messages
from train_manager.core.scope import CLOSED, Caller, Definer, Hidden, Scope
from train_manager.core.state import ALWAYS, FAILURE, State
from train_manager.core.thread_affinity import NO_THREAD, current_task


@final
class Store(State):
    """The state, and what may be done to it."""

    __slots__ = ()

    # ---- scopes ------------------------------------------------------------------------------------------------

    def close_scope(self, scope: Scope) -> None:
        """End the innermost scope: its fixtures die, and what it hid is back.

        Until the last steps it can be done again: Ctrl-C may have cut it short.
        """
        while scope.first is not None:
            cell = scope.first
            scope.first = cell.next  # before the value goes, which may have a finalizer that writes fixtures
            if cell.owner is scope or cell.owner is None:  # not if an `@always` hook has defined it anew
                cell.owner = cell.compute = None  # not `cell.empty()`: Ctrl-C comes at calls
                try:  # noqa: SIM105
                    del cell.value
                except AttributeError:  # it was not computed, or is gone already
                    pass
        if scope.extras is not None and scope.extras.hidden is not None:
            hidden = scope.extras.hidden
            for cell, content in hidden.contents:
                cell.restore(content)
            hidden.outer.first = hidden.first
            scope.extras.hidden = None
        self._note_end(scope)
        self.innermost = scope.parent
        scope.phase = CLOSED
        scope.seldom = None

    def _note_end(self, scope: Scope) -> None:
        """Let an outer stage of the same name, if there is one, be the innermost of this name again."""
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

    # ---- values ------------------------------------------------------------------------------------------------

    def define(self, name: str, value: Any, scope: Scope | None, definer: Definer) -> None:
        """Give a scope a fixture of its own."""
        if self.thread != get_ident():
            self.require_own_thread()
        if scope is None:
            raise messages.no_stage(self, name, definer)
        cell = self.cells.get(name) or self.cell(name)
        is_alive = cell.owner is not None or (name in self.late and self.bring(name))
        if is_alive or (scope is not self.innermost and self.hidden(name, scope) is not None):
            raise messages.exists(self, name, definer)
        cell.next = scope.first  # what `own` does
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
            raise messages.no_stage(self, next(iter(values), ""), definer)
        if self.late and not self.late.keys().isdisjoint(values):
            self.bring_all()
        cells, stage = self.cells, scope.name
        for name in values:
            cell = cells[name] if name in cells else self.cell(name)
            if cell.owner is not None:
                raise messages.exists(self, name, definer)
            cell.next = scope.first  # what `own` does
            scope.first = cell
            cell.definer = definer
            cell.stage = stage
            cell.owner = scope
            cell.value = values[name]

    def define_seldom(self, values: Mapping[str, Any], definer: Definer) -> None:
        """Give the innermost scope fixtures whose cells are written when something asks for them."""
        if self.thread != get_ident():
            self.require_own_thread()
        scope = self.innermost
        if scope is None:
            raise messages.no_stage(self, next(iter(values), ""), definer)
        late, waiting = self.late, scope.seldom or {}
        if not late.keys() >= values.keys():
            self.meet(scope.name, values)
            self.define_all(values, definer)  # the post hooks of open stages are called by functions made before
            return
        if not waiting.keys().isdisjoint(values):
            self.bring_all()
        for name in values:
            if late[name].owner is not None:
                raise messages.exists(self, name, definer)
        scope.seldom = {**waiting, **values}

    def define_waiting(self, name: str, value: Any, scope: Scope, definer: Definer) -> None:
        """Give a scope one seldom fixture more, whose name was met."""
        waiting = scope.seldom or {}
        if self.late[name].owner is not None or name in waiting:
            self.bring(name)
            raise messages.exists(self, name, definer)
        scope.seldom = {**waiting, name: value}

    def meet(self, stage: str, seldom: Collection[str]) -> None:
        """Note names of seldom fixtures that are new here; the functions that call hooks look for them from now on."""
        if self.late.keys() >= set(seldom):
            return
        for name in seldom:
            cell = self.late[name] = self.cell(name)
            cell.stage = cell.stage or stage
        self.forget_plans()

    def modify(self, name: str, value: Any, definer: Definer) -> None:
        """Change a live fixture; its owner stays."""
        if self.thread != get_ident():
            self.require_own_thread()
        if self.innermost is None:
            raise messages.no_stage(self, name, definer)
        cell = self.cells.get(name)
        if cell is None or (cell.owner is None and not self.bring(name)):
            raise messages.not_found(self, name, f"{messages.who(definer)} modifies", messages.where(definer))
        if cell.owner is ALWAYS:
            raise messages.reserved(self, name, definer)
        check = self.options.checks.get((cell.stage, name))
        if check is not None:
            check(value, messages.who(self.running or definer))
        if cell.compute is not None:  # then it need not be computed any more
            cell.compute = None
            cell.definer = definer
        cell.value = value

    def provide(self, name: str, value: Any, scope: Scope, definer: Definer) -> None:
        """Define a fixture, or renew it if this hook, or one that has left, has defined it in the same open stage."""
        cell = self.cell(name)
        if self.has(name) and cell.owner is scope and scope.may_renew(cell, definer):
            cell.definer, cell.compute, cell.value = definer, None, value
        else:
            self.define(name, value, scope, definer)

    def tell_failure(self, *failure: Any) -> None:
        """Tell ``@always`` hooks why the stage ends: type, error and traceback, or None three times."""
        for name, value in zip(FAILURE, failure, strict=True):
            self.cells[name].value = value

    # ---- lazy fixtures -------------------------------------------------------------------------------------------

    def set_computed(self, name: str, value: Any, scope: Scope, definer: Definer) -> None:
        """Write the value of a lazy fixture: from now on it is a fixture as any other."""
        cell = self.cells[name]
        if cell.owner is not scope:
            scope.own(cell, definer)
        cell.definer = definer
        cell.compute = None
        cell.value = value

    def require_life(self, name: str, scope: Scope, caller: Caller) -> None:
        """Refuse that a fixture of ``scope`` is made of a fixture that dies before it."""
        owner = self.owner_of(name)
        if owner is not None and owner.depth > scope.depth:
            raise messages.shorter_lived(self, name, owner, scope, caller)

    # ---- thread affinity -----------------------------------------------------------------------------------------

    def require_own_thread(self) -> None:
        """Refuse another thread or task than the one that opened the stages."""
        if self.thread == get_ident() or self.innermost is None:
            return  # as nearly always
        owner = None if self.task is None else self.task()
        if owner is None or owner is not current_task():
            raise messages.other_thread(self)

    def claim(self, *, awaits: bool) -> None:
        """Give the outermost stage to the thread or task that opens it; refuse another one for the stages inside.

        Args:
            awaits: whether a coroutine opens the stage.
        """
        task = current_task()
        if self.innermost is not None:
            self.require_own_thread()
            if awaits and task is not None and self.task is None:  # other tasks may be inside a plain function's stage
                raise messages.other_thread(self)
            return
        self.thread = get_ident() if task is None else NO_THREAD
        self.task = None if task is None else ref(task)

    def require_open(self, stage: str, definer: Definer) -> Scope:
        """Return the innermost open scope of this name."""
        scope = self.scope_of(stage)
        if scope is None:
            raise messages.not_open(self, stage, definer)
        return scope

    def require_declared(self, name: str, site: Definer) -> None:
        """Refuse, with ``strict``, that a hook writes what it does not declare."""
        if self.strict and self.running is not None and name not in self.running.written:
            raise messages.undeclared(self, name, self.running, site)
