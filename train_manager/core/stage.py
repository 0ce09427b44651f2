"""A stage: a ``with`` block that opens a scope, and runs the hooks of its plan around the block.

    around-hooks enter -> pre hooks -> body -> post hooks -> around-hooks leave, in reverse -> the fixtures die

After a failure anywhere on this way only ``@always`` hooks still run; around-hooks get the error at their yield.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from threading import get_ident
from types import FrameType, TracebackType
from typing import Any, NoReturn, final

from train_manager.core.extension import refuse_if_busy
from train_manager.core.hooks import AROUND_CURE, Hook, Provider
from train_manager.core.outcome import Failures, Skip, SkipStage
from train_manager.core.plan import clean_up
from train_manager.core.scope import CLOSED, NEW, OPEN, WAITING, Caller, Scope
from train_manager.core.store import Store
from train_manager.core.watcher import ENDS, is_of_watcher
from train_manager.telling.errors import HookError, StageError, TrainManagerError
from train_manager.telling.source_locations import line_of
from train_manager.telling.tracebacks import hide_own_frames

Suspended = Generator[None, None, None]
"""An around-hook that waits at its yield while the stage runs."""


@final
class Stage(Scope):
    """The context manager of ``with self.staged(name, ...)``, and the scope that it opens."""

    # A class and not a generator with @contextmanager: a generator that is abandoned half-way is closed whenever it is
    # collected, and would close the wrong scope then; it also costs six times as much.

    __slots__ = ("_given", "_opened_for", "_plan", "_store")

    # ---- the way of each stage that does not fail: without calls, since a call costs more than most of its lines ----

    def __init__(
        self,
        name: str,
        extensible: Any,
        store: Store,
        given: Mapping[str, Any] | None,
        opener: FrameType,
    ) -> None:
        self.name = name
        self.phase = NEW
        self.first = self.extras = self.inner_stage = None  # what `Scope.__init__` sets, without its call
        self.code = opener.f_code  # not the frame, which would keep the variables of the opening method alive
        self.instruction = opener.f_lasti
        self._opened_for = extensible  # `with Extensible().staged("work"):` has no other reference to the object
        self._store = store
        self._given = given  # the fixtures that `__enter__` defines

    def __enter__(self) -> Stage:
        store, name = self._store, self.name
        if self.phase is not NEW or store.running is not None:
            raise self._not_to_be_opened()
        parent = store.innermost
        if parent is not None:
            if parent.inner_stage is not None:  # the stage around this one runs closed
                store.open_inner()
                parent = store.innermost
            elif name in store.closed and store.thread == get_ident():
                # Nothing looks into the stage: it opens only if code inside does, by `open_late`.
                parent.inner_stage, self.parent, self.phase = self, parent, WAITING
                return self
        return self._open(parent)

    def _open(self, parent: Scope | None) -> Stage:
        """Open the scope, define the fixtures and run the pre hooks."""
        store, name = self._store, self.name
        plan = store.plans.get(name)
        if plan is None:
            plan = store.plan_of(name)
        # The open stage of the same name, if this is a recursion. `store.open.get(name)` would be a call more.
        outer = store.open[name] if name in store.open else None  # noqa: SIM401
        # Three events need a longer look: another thread; hooks that were not checked yet; a shared extension.
        if store.thread != get_ident() or (parent is None and (store.shares or not store.is_checked)):
            self._claim()
        self._plan, self.parent = plan, parent
        # From here on the scope is open, so each error, and Ctrl-C, closes it again.
        try:
            store.innermost = store.open[name] = self
            self.phase = OPEN
            if outer is not None:
                store.hide(outer, self)
            given = self._given
            if given is not None:
                # `with` keeps this object until its last line, but the values must die with the stage.
                self._given = None
                # `store.define_all(given)`, written out.
                cells = store.cells
                for fixture in given:
                    try:
                        cell = cells[fixture]
                    except KeyError:
                        cell = store.cell(fixture)
                    if cell.owner is not None:
                        raise store.exists_error(fixture, self.opened_at)
                    cell.next = self.first
                    self.first = cell
                    cell.definer = None  # stands for the line that opens the stage
                    cell.stage = name
                    cell.owner = self
                    cell.value = given[fixture]
            for cell, lazy in plan.own_lazy:
                if cell.owner is not None:
                    raise store.exists_error(cell.name, lazy.provider)
                self.own(cell, lazy.provider)
                cell.compute = lazy
        except BaseException:
            store.close_scope(self)
            raise
        # The around-hooks enter, and the pre hooks run. If one fails, or skips the stage, the stage ends here: `with`
        # does not call `__exit__` after an error of `__enter__`.
        if plan.run_pre is not None:
            try:
                plan.run_pre(self, store)
            except BaseException as error:
                failures = self._failures_from(error)
                if isinstance(error, SkipStage):
                    error.path = self.path
            else:
                return self
            # Outside of `except`, so that this error is not shown as the context of an error of an `@always` hook.
            self._end(failures, plan.post)
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        store = self._store
        if self.phase is WAITING:
            self._end_closed(error)
            return
        plan = self._plan
        # The body has failed; or a generator that the body has left half-way holds a stage inside this one open.
        if error is not None or store.innermost is not self:
            self._end_failed(error)
            return
        # The post hooks run. If one fails, only the `@always` hooks after it are left to run.
        if plan.run_post is not None:
            if store.thread != get_ident():
                store.require_own_thread()
            failures = None
            try:
                plan.run_post(self, store)
            except BaseException as raised:
                rest = _after(store.running, plan.post)
                failures = self._failures_from(raised)
            if failures is not None:
                self._end(failures, rest)
        # Around-hooks or providers wait to be resumed, or `keep` has named fixtures.
        if self.extras is not None:
            self._end(Failures(self.name), ())
            return
        # `store.close_scope(self)`, written out for the usual case: nothing is hidden, and each cell has a value.
        try:
            cell = self.first
            while cell is not None:
                self.first = cell.next  # before the value goes: it may have a finalizer that writes fixtures
                cell.owner = None
                if cell.compute is None:
                    del cell.value
                else:  # a lazy fixture that was not computed
                    cell.compute = None
                cell = self.first
        except AttributeError:  # Ctrl-C has come between two lines of a write
            assert cell is not None, "only `del cell.value` raises this error"
            cell.compute = None
            store.close_scope(self)
            return
        del store.open[self.name]
        store.innermost = self.parent
        self.phase = CLOSED

    # ---- for users -----------------------------------------------------------------------------------------------

    def keep(self, name: str) -> None:
        """Hand a fixture out of the stage: after the end, ``kept[name]`` is the value that the last hook has left.

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
        self.add_extras().kept[name] = None

    def end_if_open(self) -> None:
        """End the stage if it is still open after its ``with`` block."""
        # Ctrl-C at the first or last lines of `__exit__` comes out of the `with` statement, which calls it only once.
        self._end_failed(sys.exc_info()[1])

    @property
    def kept(self) -> Mapping[str, Any]:
        """The fixtures that ``keep`` has handed out, by name."""
        return {} if self.extras is None else self.extras.kept

    # ---- the beginning -------------------------------------------------------------------------------------------

    def _claim(self) -> None:
        """Refuse another thread, mistakes in hooks, and extensions that serve another Extensible meanwhile."""
        store = self._store
        store.require_own_thread()
        store.thread = get_ident()
        if store.innermost is None and not store.is_checked:
            store.check_once()
        if store.innermost is None and store.shares:
            refuse_if_busy(store.extensions.values(), store)

    def gives(self, name: object) -> bool:
        """Return whether a name is one of the fixtures that the stage defines as it opens."""
        return self._given is not None and name in self._given

    def open_late(self) -> None:
        """Open the stage after all: code inside defines a fixture in it, or asks for one that it gives."""
        store, parent = self._store, self.parent
        assert parent is not None, "a stage without a stage around it is always opened"
        parent.inner_stage = None
        running, store.running = store.running, None  # a provider that is being computed may ask
        try:
            self._open(parent)
        finally:
            store.running = running

    def _enter(self, hook: Hook) -> None:
        """Run an around-hook to its ``yield``, and note it among those that wait there."""
        generator = self._call(hook)
        if generator is None:  # a schedule has refused, or a hook of every stage names a fixture that is not alive here
            return
        if not isinstance(generator, Generator):  # as of a hook below @contextmanager
            raise _misuse_error(hook, f"returned a {type(generator).__name__}, which is not a generator")
        # Before it runs: if Ctrl-C comes as it reaches its `yield`, the rest of the hook must still run at the end.
        self.add_extras().suspended.append((hook, generator))
        try:
            next(generator)
        except StopIteration:
            raise _misuse_error(hook, "did not yield, so the stage would never run") from None

    def _not_to_be_opened(self) -> StageError:
        """Make the error for a stage that a hook opens, or that is opened a second time."""
        if self._store.running is not None:
            what = f"{self._store.running.label} opens stage {self.name!r} of the extensible that is calling it"
            cure = "hooks run around stages and open none; open the stage in a method of the extensible"
        else:
            what = f"stage {self.name!r} was opened a second time from one `staged(...)`"
            cure = "call `self.staged(...)` anew in each `with`"
        return StageError(what, name=self.name, asked_at=line_of(self.opened_at), stages=self._store.path, cure=cure)

    # ---- the end -----------------------------------------------------------------------------------------------

    def _end_closed(self, error: BaseException | None) -> None:
        """End a stage that was never opened: an error gets a note with its path, as in an open one."""
        store = self._store
        if error is not None and store.options.notes_errors and isinstance(error, Exception):
            note_place(error, store.path)
        assert self.parent is not None, "as in `open_late`"
        self.parent.inner_stage = self._given = None
        self.phase = CLOSED

    def _end_failed(self, error: BaseException | None) -> None:
        """End after an error in the body, or while stages inside this one are open."""
        if self.phase == CLOSED:  # an outer stage has closed this one, by `_unwind_inner`, and raised the error
            return
        self._store.require_own_thread()
        if self._store.options.notes_errors and isinstance(error, Exception):
            note_place(error, self.path)
        failures = Failures(self.name, error)
        while self._store.innermost is not self:
            self._unwind_inner(failures)
        self._tell(failures, ENDS)
        self._end(failures, self._plan.post, error)

    def _end(self, failures: Failures, hooks: Iterable[Hook], error: BaseException | None = None) -> None:
        """End the stage, and raise the exception that comes out of it.

        Args:
            failures: the exceptions so far.
            hooks: the post hooks that have not run; the ``@always`` hooks of them run now.
            error: the error of the body, which ``with`` itself raises again if it comes out.
        """
        self._close(failures, hooks)
        outcome = failures.outcome()
        if outcome is not None and self.parent is None:  # the error leaves the library here
            hide_own_frames(outcome)
        if outcome is not None and outcome is not error:
            try:
                raise outcome
            finally:
                del outcome  # its traceback refers to this frame: the cycle would keep the values of the stage alive

    def _close(self, failures: Failures, hooks: Iterable[Hook]) -> None:
        """Run the ``@always`` hooks, leave the around-hooks in reverse and, whatever they did, close the scope."""
        try:
            for hook in hooks:
                if hook.always:
                    self._run_guarded(failures, hook, self._call, hook)
            self._let_go(failures)
        except BaseException as interrupt:  # Ctrl-C between two hooks (`_run_guarded` catches it inside of one)
            failures.add(interrupt)
            self._let_go(failures)
        finally:
            # The values of `keep` are read after the last hook, and before the fixtures die.
            if self.extras is not None:
                kept = self.extras.kept
                kept.update({name: getattr(self._store.cells.get(name), "value", None) for name in kept})
            self._store.close_scope(self)

    def _let_go(self, failures: Failures, callers: Sequence[Hook | Provider] | None = None) -> None:
        """Run the rest of around-hooks and lazy fixtures that wait at their ``yield``, the last first; None: of all."""
        suspended = [] if self.extras is None else self.extras.suspended
        while waiting := [one for one in suspended if callers is None or one[0] in callers]:
            caller, generator = waiting[-1]
            suspended.remove(waiting[-1])  # before it runs, so that it runs once
            self._run_guarded(failures, caller, self._resume, caller, generator, failures.first())

    def _run_guarded(self, failures: Failures, caller: Hook | Provider, do: Callable[..., None], *args: Any) -> None:
        """Call a function for a hook or provider at the end of the stage, and note its error among the failures."""
        store, error = self._store, failures.first()
        store.running = caller
        try:
            # The hook may name `exc_type`, `exc_value` and `traceback`, which are None at all other times.
            if error is not None:
                store.set_failure(type(error), error, error.__traceback__)
            do(*args)
            store.watch(self, caller)
            store.running = None
        except BaseException as raised:
            self._note_failure(failures, raised)
        finally:
            if error is not None:
                store.set_failure(None, None, None)

    def _unwind_inner(self, failures: Failures) -> None:
        """End the innermost stage by force: its ``with`` block is in a generator that was not finished."""
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
        inner._tell(inner_failures, ENDS)
        inner._close(inner_failures, inner._plan.post)
        failures.add(inner_failures.outcome() or error)

    # ---- hooks -------------------------------------------------------------------------------------------------

    def _call(self, hook: Hook) -> Any:
        """Call a hook with the fixtures that it names, and write its return value; the caller has set ``running``."""
        store = self._store
        if hook.everywhere and not self._is_alive(hook):
            return None
        for _, should_run in hook.schedules:
            if not should_run(store):
                return None
        try:
            returned = hook.call(store)
        finally:
            if hook.schedules and hook.kind != "around":  # an around-hook finishes at its end, in `_resume`
                _finish_schedules(hook)
        if hook.writes:
            self._write(hook, returned)
        elif returned is not None and hook.returns_nothing:
            self._refuse_return(hook)
        return returned

    def _write(self, hook: Hook, returned: Any) -> None:
        """Write the return value of a hook, a tuple for several names, to the fixtures that it declares."""
        store = self._store
        values = (returned,) if len(hook.writes) == 1 else returned  # one fixture may itself be a tuple
        if not isinstance(values, tuple) or len(values) != len(hook.writes):
            names = ", ".join(hook.written)
            wrong, cure = f"returned {_describe(returned)} for ({names})", f"return a tuple: return {names}"
            raise hook.call.error(wrong, hook.writes[0].name, cure)
        for target, value in zip(hook.writes, values, strict=True):
            if target.defines:
                owner = self if target.stage is None else store.require_open(target.stage, hook)
                store.provide(target.name, value, owner, hook)
            elif value is None:  # the hook has no `return`: most likely it was forgotten
                wrong = f"returned None for {target.name!r}, which it modifies"
                raise hook.call.error(wrong, hook.writes[0].name, "return the new value")
            else:
                store.modify(target.name, value, hook)

    def _refuse_return(self, hook: Hook) -> NoReturn:
        """Refuse the return value of a hook that declares no write: it would be lost."""
        cure = 'declare what it writes: @provides("name") or @modifies("name") above the hook; or drop the return'
        raise hook.call.error("returned a value that it does not declare", hook.label, cure)

    def _is_alive(self, hook: Hook) -> bool:
        """Return whether all fixtures are alive that a hook of every stage and its schedules name or modify."""
        names = [target.name for target in hook.writes if not target.defines]
        names += [name for _, should_run in hook.schedules for name in should_run.required]
        return not hook.call.missing(self._store) and all(map(self._store.has, names))

    def _resume(self, suspended: Hook | Provider, generator: Any, error: BaseException | None) -> None:
        """Run the rest of an around-hook or a provider after its ``yield``."""
        if isinstance(suspended, Hook):
            try:
                _run_rest(suspended, generator, error)
            finally:
                _finish_schedules(suspended)
        else:
            clean_up(suspended, generator)

    def _failures_from(self, error: BaseException) -> Failures:
        """Return the failures of this stage, with the error of a hook as the first."""
        failures = Failures(self.name)
        self._note_failure(failures, error)
        return failures

    def _note_failure(self, failures: Failures, error: BaseException) -> None:
        """Note the error of the running hook among the failures, and tell the watchers that the hook has run."""
        caller = self._store.running
        failures.add(self._annotate(error))
        if caller is not None and not is_of_watcher(error):  # a watcher that has failed was told of the hook already
            self._tell(failures, caller)

    def _tell(self, failures: Failures, ran: Caller | str) -> None:
        """Tell the watchers what has run; an error of a watcher is one of the failures."""
        try:
            self._store.watch(self, ran)
        except BaseException as raised:
            raised.add_note(f"at stage {' > '.join(self.path)}")
            failures.add(raised)

    def _annotate(self, error: BaseException) -> BaseException:
        """Return the error of the running hook with a note that names the hook and the stage."""
        store = self._store
        caller, store.running = store.running, None  # hooks that run at the end of the stage come next
        if caller is None:
            return error
        kind = "hook" if isinstance(caller, Hook) else "fixture"
        if isinstance(error, AttributeError) and isinstance(caller, Hook) and caller.is_plain:
            # The generated function reads cells without a look at what is alive. If a fixture is missing, its read of
            # the cell has failed, and the hook was not called.
            missing = caller.call.missing(store)
            if missing:
                error = caller.call.not_found(store, missing[0])
        place = "after" if is_of_watcher(error) else "in"
        error.add_note(f"{place} {kind} {caller.label} of {caller.whose}, at stage {' > '.join(self.path)}")
        return error


def note_place(error: Exception, path: Iterable[str]) -> None:
    """Add a note with the path of the stage whose body has failed, unless the error names a stage already."""
    known = isinstance(error, Skip | TrainManagerError)
    if not known and not any("at stage " in note for note in getattr(error, "__notes__", ())):
        error.add_note(f"at stage {' > '.join(path)}")


def stage_of(error: Exception) -> str | None:
    """Return the path of the stage in which an error was raised: a note has it, or the error itself; else None."""
    notes = [str(note) for note in getattr(error, "__notes__", ()) if "at stage " in str(note)]
    if notes:
        return notes[0].partition("at stage ")[2].splitlines()[0]
    inner = getattr(error, "exceptions", None)  # the errors of an ExceptionGroup
    if inner:
        return stage_of(inner[0])
    return " > ".join(getattr(error, "stages", None) or ()) or None


def _finish_schedules(hook: Hook) -> None:
    for schedule, _ in hook.schedules:
        schedule.finished()


def _after(ran: Caller | None, hooks: Sequence[Hook]) -> Sequence[Hook]:
    """Return the hooks after the one that ran last."""
    count = next((count for count, hook in enumerate(hooks, start=1) if hook is ran), 0)
    return hooks[count:]


# ---- around-hooks ----------------------------------------------------------------------------------------------------


def _run_rest(hook: Hook, generator: Suspended, error: BaseException | None) -> None:
    """Run the rest of an around-hook after its ``yield``, at which the error of a failed stage is raised.

    The hook may clean up after the error, but cannot swallow it: the stage raises it whatever the hook does.
    """
    try:
        if error is None:
            next(generator)
        else:
            _throw(generator, error)
    except StopIteration:  # the hook has ended, as it must
        return
    generator.close()
    raise _misuse_error(hook, "yields more than once")


def _throw(generator: Suspended, error: BaseException) -> None:
    """Raise an error at the ``yield`` of a hook; a StopIteration says that the hook let the error through."""
    traceback = error.__traceback__
    try:
        generator.throw(error)
    except BaseException as raised:
        # A generator turns a StopIteration that leaves it into a RuntimeError (PEP 479), which is not the hook's error.
        wrapped = isinstance(error, StopIteration) and raised.__cause__ is error
        if raised is error or wrapped:
            raise StopIteration from None
        raise
    finally:
        error.__traceback__ = traceback  # each around-hook that passes the error on would add its frames


def _misuse_error(hook: Hook, wrong: str) -> HookError:
    return hook.call.error(wrong, hook.label, AROUND_CURE)


def _describe(value: Any) -> str:
    if isinstance(value, tuple):
        return f"{len(value)} values"
    return "None" if value is None else f"one {type(value).__name__}"
