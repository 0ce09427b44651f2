"""A stage: a ``with`` block that opens a scope, and runs the hooks of its plan around the block.

    around-hooks enter -> pre hooks -> body -> post hooks -> around-hooks leave, in reverse -> the fixtures die

After a failure anywhere on this way only ``@always`` hooks still run; around-hooks get the error at their yield.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from operator import attrgetter
from threading import get_ident
from types import FrameType, TracebackType
from typing import Any, Final, NoReturn, final

from train_manager.core import hook_calls, messages
from train_manager.core.hooks import Hook
from train_manager.core.outcome import Failures, Skip, SkipStage
from train_manager.core.plan import Plan
from train_manager.core.providers import Provider, clean_up
from train_manager.core.registry import refuse_if_busy
from train_manager.core.scope import CLOSED, NEW, OPEN, Caller, Cell, Scope
from train_manager.core.store import Store
from train_manager.core.thread_affinity import AWAITING, SUSPENDABLE
from train_manager.telling.errors import StageError, TrainManagerError
from train_manager.telling.source_locations import line_of
from train_manager.telling.tracebacks import hide_own_frames

owner_of: Final = attrgetter("owner")


@final
class Stage(Scope):
    """What ``with self.staged(name, ...)`` opens and ends.

    Not a generator-made context manager: one that is abandoned half-way would close the wrong scope when it is
    collected, and costs six times as much.
    """

    __slots__ = ("_given", "_opened_for", "_plan", "_store")

    # ---- the path of every stage: written out, since a call costs more than most of what is done here --------------

    def __init__(
        self,
        name: str,
        extensible: Any,
        store: Store,
        given: Mapping[str, Any] | None,
        seldom: Mapping[str, Any] | None,
        opener: FrameType,
    ) -> None:
        self.name = name
        self.phase = NEW
        self.first = self.extras = self.part = None  # as in Scope
        self.code = opener.f_code  # not the frame, which would keep the opener's variables alive
        self.instruction = opener.f_lasti
        self._opened_for = extensible  # `with Extensible().staged("work"):` has no other reference to it
        self._store = store
        self._given = given
        self.seldom = seldom

    def __enter__(self) -> Stage:
        store, name = self._store, self.name
        if self.phase is not NEW or store.running is not None:
            raise self._not_to_be_opened()
        seldom = self.seldom
        if seldom is not None and not store.late.keys() >= seldom.keys():
            store.meet(name, seldom)
        plan = store.plans.get(name)
        if plan is None:
            plan = self._planned()
        outer = store.open[name] if name in store.open else None  # noqa: SIM401  # a call less
        parent = store.innermost
        if store.thread != get_ident() or self.code.co_flags & SUSPENDABLE or (parent is None and store.shares):
            self._claim()
        self._plan, self.parent = plan, parent
        try:
            store.innermost = store.open[name] = self
            self.phase = OPEN
            if outer is not None:
                store.hide(outer, self)
            given = self._given
            if given is not None:
                self._given = None  # `with` keeps this object, and the values must not outlive the stage
                if store.late and not store.late.keys().isdisjoint(given):
                    store.bring_all()
                cells = store.cells
                for fixture in given:
                    try:
                        cell = cells[fixture]
                    except KeyError:
                        cell = store.cell(fixture)
                    if cell.owner is not None:
                        raise messages.exists(store, fixture, self.opened_at)
                    cell.next = self.first  # what `own` does
                    self.first = cell
                    cell.definer = None
                    cell.stage = name
                    cell.owner = self
                    cell.value = given[fixture]
            if seldom is not None or plan.own_cells:
                self._refuse_live(plan, seldom)
        except BaseException:
            store.close_scope(self)
            raise
        if plan.run_pre is not None:
            try:
                plan.run_pre(self, store)
            except BaseException as error:
                failures = self._failed(error)
                if isinstance(error, SkipStage):
                    error.path = self.path
            else:
                return self
            self._end(failures, self._plan.post)  # not `plan`: extensions may have joined
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        store, plan = self._store, self._plan
        if error is not None or store.innermost is not self:
            self._end_failed(error)
            return
        if plan.run_post is not None:
            if store.thread != get_ident():
                store.require_own_thread()
            failures = None
            try:
                plan.run_post(self, store)
            except BaseException as raised:
                rest = _after(store.running, plan.post)
                failures = self._failed(raised)
            if failures is not None:
                self._end(failures, rest)
        if self.extras is not None:
            self._end(Failures(self.name), ())
            return
        try:
            cell = self.first  # what `close_scope` does
            while cell is not None:
                self.first = cell.next  # before the value goes, which may have a finalizer that writes fixtures
                cell.owner = None
                del cell.value
                cell = self.first
        except AttributeError:  # a lazy fixture was not computed; or Ctrl-C has come between two lines of a write
            assert cell is not None, "it has no value"
            cell.compute = None
            store.close_scope(self)
            return
        del store.open[self.name]
        store.innermost = self.parent
        self.phase = CLOSED
        self.seldom = None

    # ---- for users -----------------------------------------------------------------------------------------------

    def keep(self, name: str) -> None:
        """Hand a fixture out of the stage: ``kept[name]`` is, after the end, what the last hook has made of it.

        >>> from train_manager import Extensible, Extension, modifies
        >>> class Rounded(Extension):
        ...     @modifies("result")
        ...     def post_measure(self, result):
        ...         return round(result, 1)
        >>> class Meter(Extensible):
        ...     def measure(self):
        ...         with self.staged("measure", {"result": 0.3333}) as stage:
        ...             stage.keep("result")
        ...         return stage.kept["result"]
        >>> Meter([Rounded()]).measure()
        0.3
        """
        self._store.has(name)  # a fixture that waits is written
        self.add_extras().kept[name] = None

    def end_if_open(self) -> None:
        """End the stage if Ctrl-C has come at the first or last lines of its end, of which ``with`` knows nothing."""
        self._end_failed(sys.exc_info()[1])

    @property
    def kept(self) -> Mapping[str, Any]:
        """The fixtures that ``keep`` has handed out, by name."""
        return {} if self.extras is None else self.extras.kept

    # ---- the beginning -------------------------------------------------------------------------------------------

    def _refuse_live(self, plan: Plan, seldom: Mapping[str, Any] | None) -> None:
        """Refuse fixtures that wait in this stage, and live in one around it."""
        store = self._store
        for name in plan.contested:
            store.bring_from(self.parent, name)  # it may wait there
        if seldom is not None:
            around = self.parent
            while around is not None and around.seldom is None:
                around = around.parent
            if around is not None or not plan.lazy.keys().isdisjoint(seldom):
                for name in seldom:
                    store.bring_from(self.parent, name)
            for name in seldom:
                if store.late[name].owner is not None:
                    raise messages.exists(store, name, self.opened_at)
        if any(map(owner_of, plan.own_cells)):  # without a line of Python for each, in every step
            cell = next(cell for cell in plan.own_cells if cell.owner is not None)
            raise messages.exists(store, cell.name, plan.own_lazy[cell.name].provider)

    def _claim(self) -> None:
        """Refuse the stages of another thread or task, and extensions that serve another stage at the moment."""
        store = self._store
        if store.thread != get_ident() or self.code.co_flags & SUSPENDABLE:
            store.claim(awaits=bool(self.code.co_flags & AWAITING))
        if store.shares and store.innermost is None:
            refuse_if_busy(store.extensions.values(), store)

    def bring(self, cell: Cell) -> bool:
        name, seldom, lazy = cell.name, self.seldom, self._plan.own_lazy
        if seldom is not None and name in seldom:
            self.own(cell, None)
            cell.value = seldom[name]
        elif name in lazy:
            self.own(cell, lazy[name].provider)
            cell.compute = lazy[name]
        else:
            return False
        return True

    def _planned(self) -> Plan:
        """Return the plan, which is made at the first opening."""
        if self._store.innermost is None:
            self._store.before_outermost()
        plan: Plan = self._store.plan_of(self.name)
        return plan

    def _enter(self, hook: Hook) -> None:
        """Run an around-hook to its yield."""
        generator = self._call(hook)
        if generator is not None:  # None: its schedule says no, or a hook of every stage names what is not alive here
            self.add_extras().suspended.append((hook, generator))  # before it runs: Ctrl-C may come as it returns
            hook_calls.enter(hook, generator)

    def _opened(self) -> None:
        """Let extensions come and go from now on, those first that came while the pre hooks ran."""
        extras = self.add_extras()
        extras.is_joinable = True
        while extras.waiting:
            extras.waiting.pop(0)()

    def _not_to_be_opened(self) -> StageError:
        if self._store.running is not None:
            what = f"{self._store.running.label} opens stage {self.name!r} of the extensible that is calling it"
            cure = "hooks run around stages and open none; open the stage in a method of the extensible"
        else:
            what = f"stage {self.name!r} was opened a second time from one `staged(...)`"
            cure = "call `self.staged(...)` anew in each `with`"
        return StageError(what, name=self.name, asked_at=line_of(self.opened_at), stages=self._store.path, cure=cure)

    # ---- the end -----------------------------------------------------------------------------------------------

    def _end_failed(self, error: BaseException | None) -> None:
        """End after an error in the body, or while stages inside this one are open."""
        if self.phase == CLOSED:  # an outer stage has unwound this one, and said so
            return
        self._store.require_own_thread()
        if self._store.options.notes_errors and isinstance(error, Exception):
            note_place(error, self.path)
        failures = Failures(self.name, error)
        while self._store.innermost is not self:
            self._unwind_inner(failures)
        self._end(failures, self._plan.post, error)

    def _ends(self) -> None:
        """Let no extension come or go any more: the post hooks of this stage are decided."""
        extras = self.add_extras()
        extras.is_joinable, extras.is_ending = False, True

    def _end(self, failures: Failures, hooks: Iterable[Hook], error: BaseException | None = None) -> None:
        """End the stage, and raise what comes out of it; if that is the error of its body, ``with`` does it."""
        self._close(failures, hooks)
        outcome = failures.outcome()
        if outcome is not None and self.parent is None:
            hide_own_frames(outcome)
        if outcome is not None and outcome is not error:
            try:
                raise outcome
            finally:
                del outcome  # its traceback knows this frame, and would keep it and all that it saw alive

    def _close(self, failures: Failures, hooks: Iterable[Hook]) -> None:
        """Run the ``@always`` hooks, leave the around-hooks in reverse and, whatever they did, close the scope."""
        left = [hook for hook in hooks if hook.always][::-1]
        try:
            if self.name == self._store.options.joined:
                self._ends()
            self._leave(failures, left)
        except BaseException as interrupt:  # Ctrl-C has come between two hooks, and the others still run
            failures.add(interrupt)
            self._leave(failures, left)
        finally:
            if self.extras is not None:
                kept = self.extras.kept
                kept.update({name: getattr(self._store.cells.get(name), "value", None) for name in kept})
            self._store.close_scope(self)

    def _leave(self, failures: Failures, left: list[Hook]) -> None:
        """Run hooks, from the last of the list on, and leave the around-hooks; each is taken off when it is done."""
        while left:
            self._guarded(failures, left[-1], self._call, left[-1])
            left.pop()
        while self.extras is not None and self.extras.suspended:
            caller, generator = self.extras.suspended[-1]
            for is_first in (True, False):  # a second time if Ctrl-C has come before the hook went on
                if hook_calls.is_waiting(generator, is_known=is_first):
                    self._guarded(failures, caller, self._resume, caller, generator, failures.first())
            self.extras.suspended.remove((caller, generator))  # not the last one: a hook may have asked for a fixture

    def _guarded(self, failures: Failures, caller: Hook | Provider, do: Callable[..., None], *args: Any) -> None:
        """Do one thing at the end, which is told what has failed so far, and note if it fails itself."""
        store, error = self._store, failures.first()
        store.running = caller
        try:
            if error is not None:
                store.tell_failure(type(error), error, error.__traceback__)
            do(*args)
            store.running = None
        except BaseException as raised:
            failures.add(self._told(raised))
        finally:
            if error is not None:
                store.tell_failure(None, None, None)

    def _unwind_inner(self, failures: Failures) -> None:
        """End the innermost stage by force: its block goes on, in a generator that was not finished."""
        inner = self._store.innermost
        assert isinstance(inner, Stage), "this stage is open, so the innermost one is a stage"
        error = StageError(
            f"stage {self.name!r} ended while stage {inner.name!r} inside it was still open",
            name=inner.name,
            asked_at=line_of(inner.opened_at),
            stages=inner.path,
            cure="a generator opened it and was left half-way: finish or close() it inside the outer stage",
        )
        inner_failures = Failures(inner.name, error)
        inner._close(inner_failures, inner._plan.post)
        failures.add(inner_failures.outcome() or error)

    # ---- hooks -------------------------------------------------------------------------------------------------

    def _call(self, hook: Hook) -> Any:
        """Call a hook, known to be running, with the fixtures it names, and write what it returns."""
        store = self._store
        if hook.everywhere and not self._is_alive(hook):
            return None
        for _, should_run in hook.schedules:
            if not should_run(store):
                return None
        try:
            returned = hook.call(store)
        finally:
            if hook.schedules and hook.kind != "around":
                _finished(hook)
        if hook.writes:
            hook_calls.write(store, hook, self, returned)
        elif returned is not None and hook.returns_nothing:
            self._refuse_return(hook)
        return returned

    def _refuse_return(self, hook: Hook) -> NoReturn:
        hook_calls.refuse_return(hook)

    def _is_alive(self, hook: Hook) -> bool:
        """Return whether all fixtures that a hook and its schedules name or modify are alive."""
        names = [target.name for target in hook.writes if not target.defines]
        names += [name for _, should_run in hook.schedules for name in should_run.required]
        return not hook.call.missing(self._store) and all(map(self._store.has, names))

    def _resume(self, suspended: Hook | Provider, generator: Any, error: BaseException | None) -> None:
        """Run the part of a hook or a provider after its yield."""
        if isinstance(suspended, Hook):
            try:
                hook_calls.leave(suspended, generator, error)
            finally:
                _finished(suspended)
        else:
            clean_up(suspended, generator)

    def _failed(self, error: BaseException) -> Failures:
        """Return the failures of this stage, of which the error of a hook is the first."""
        failures = Failures(self.name)
        failures.add(self._told(error))
        return failures

    def _told(self, error: BaseException) -> BaseException:
        """Return the error of the running hook with a note that says which hook, and where."""
        store = self._store
        caller, store.running = store.running, None
        if caller is None:
            return error
        kind = "hook" if isinstance(caller, Hook) else "fixture"
        if isinstance(error, AttributeError) and isinstance(caller, Hook) and caller.is_plain:
            missing = caller.call.missing(store)
            if missing:  # then it was not called: the generated function found no value in a cell
                error = caller.call.not_found(store, missing[0])
        error.add_note(f"in {kind} {caller.label} of {caller.whose}, at stage {' > '.join(self.path)}")
        return error


def note_place(error: Exception, path: Iterable[str]) -> None:
    """Note at which stage the body has failed, unless the error says so already, as those of this library do."""
    known = isinstance(error, Skip | TrainManagerError)
    if not known and not any("at stage " in note for note in getattr(error, "__notes__", ())):
        error.add_note(f"at stage {' > '.join(path)}")


def _finished(hook: Hook) -> None:
    for schedule, _ in hook.schedules:
        schedule.finished()


def _after(ran: Caller | None, hooks: Sequence[Hook]) -> Sequence[Hook]:
    """Return the hooks after the one that ran last."""
    count = next((count for count, hook in enumerate(hooks, start=1) if hook is ran), 0)
    return hooks[count:]
