"""A stage: a ``with`` block that opens a scope, and runs the hooks of its plan around the block.

    around-hooks enter -> pre hooks -> body -> post hooks -> around-hooks leave, in reverse -> the fixtures die

After a failure anywhere on this way only ``@always`` hooks still run; around-hooks get the error at their yield.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from sys import getrefcount
from types import MappingProxyType, TracebackType
from typing import Any, final

from train_manager.core import callers, dispatch, messages
from train_manager.core.affinity import AWAITING
from train_manager.core.callers import write
from train_manager.core.errors import StageError, TrainManagerError
from train_manager.core.hooks import Hook
from train_manager.core.locations import line_of
from train_manager.core.outcome import Failures, Skip, SkipStage
from train_manager.core.providers import Provider, clean_up, promises
from train_manager.core.registry import refuse_if_busy
from train_manager.core.scope import CLOSED, NEW, OPEN, OPEN_WITH_MORE, SPARE, TAKEN, Caller, Place, Scope
from train_manager.core.store import Store


class _Probe:
    """Counts the references to itself in ``__exit__`` where no variable has it; how many, is Python's affair."""

    count = 0

    def __enter__(self) -> None: ...

    def __exit__(
        self, exc_type: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        _Probe.count = getrefcount(self)


with _Probe():
    pass

_NO_PLAN = object()
_NOTHING: Mapping[str, Any] = MappingProxyType({})

UNSEEN = min(_Probe.count, 3) + 1  # a debugger that looks on has one more
"""References to a stage in its ``__exit__`` where nobody but its place can see it afterwards."""


@final
class Stage(Scope):
    """What ``with self.staged(name, ...)`` opens and ends. Made, and its attributes set, by ``Extensible.staged``.

    Not a generator-made context manager: one that is abandoned half-way would close the wrong scope when it is
    collected, and costs six times as much.
    """

    __slots__ = ("_given", "_place", "_plan", "_store", "kept")

    _store: Store
    _place: Place
    _given: Mapping[str, Any] | None
    _plan: Any  # a Plan, once it is open
    kept: Mapping[str, Any]
    """The fixtures that outlive the stage because its opener has asked for them."""

    # ---- the path of every stage, written out: a call would cost more than what it does --------------------------

    def __enter__(self) -> Stage:
        store, place = self._store, self._place
        outer = None
        if self.phase is not TAKEN or store.running is not None:
            self._refuse_opening()
            outer = store.scope_of(self.name)
        plan = place.plan
        if plan is not self._plan:  # what is there already is not written: comparing takes half the time
            plan = self._plan = place.plan or store.plan_of(self.name)
        if not store.lock._is_owned() or store.shares or self.suspends:
            self._take_strand()
        self.parent = store.innermost
        try:
            store.innermost = self
            self.phase = OPEN
            if outer is not None:
                store.put_aside(outer, self)
            given = self._given
            if given is not None:
                self._given = None  # `with` keeps this object, and the values must not outlive the stage
                cells, stage = store.cells, self.name
                for name in given:
                    try:
                        cell = cells[name]
                    except KeyError:
                        cell = store.cell(name)
                    if cell.owner is not None:
                        raise messages.exists(store, name, self.opened_at)
                    if cell.definer is not None:  # what `own` does
                        cell.definer = None
                    if cell.stage is not stage:
                        cell.stage = stage
                    cell.next = self.first
                    self.first = cell
                    cell.owner = self
                    cell.value = given[name]
        except BaseException:
            store.close_scope(self)
            raise
        try:
            if plan.run_pre is not None:
                plan.run_pre(self, store)
        except BaseException as error:
            failures = Failures(self.name)
            failures.add(self._told(error))
            if isinstance(error, SkipStage):
                error.path = self.path
        else:
            return self
        self._end(failures, plan.post)
        raise failures.outcome() or AssertionError("a failure has an outcome")

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
            if not store.lock._is_owned():
                store.require_own_strand()
            failures = None
            try:
                plan.run_post(self, store)
            except BaseException as raised:
                rest = _after(store.running, plan.post)
                failures = Failures(self.name)
                failures.add(self._told(raised))
            if failures is not None:
                self._end(failures, rest)
                _raise(failures)
                return
        if self.phase is not OPEN:
            self._end_rest()
            return
        try:
            cell = self.first  # what `close_scope` does
            while cell is not None:
                self.first = cell.next  # before the value goes, which may have a finalizer that writes fixtures
                cell.owner = None
                del cell.value
                cell = self.first
        except AttributeError:  # Ctrl-C has come between two lines of a write
            store.close_scope(self)
            return
        store.innermost = self.parent
        place = self._place
        if place.stage is self and getrefcount(self) <= UNSEEN:  # and extensions have not changed
            self.phase = SPARE
            self.parent = None  # who would be seen by this one
        else:
            self.phase = CLOSED
            if place.stage is self:
                place.stage = None

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
        self.kept = {**self.kept, name: None}
        self.phase = OPEN_WITH_MORE

    # ---- the beginning -------------------------------------------------------------------------------------------

    def _take_strand(self) -> None:
        """See that nobody else has stages open, neither here nor where an extension of this one serves, too."""
        store = self._store
        if not store.lock._is_owned() or self.suspends:
            store.take_strand(awaits=bool(self.code.co_flags & AWAITING))
        if store.shares and store.innermost is None:
            refuse_if_busy(store.extensions.values(), store)

    def _promise(self) -> None:
        """Let what is provided in this stage be computed on demand."""
        self.phase = OPEN_WITH_MORE
        self._store.promise(self, promises(self._plan.providers, self, self._store))

    def _enter(self, hook: Hook) -> None:
        """Run an around-hook to its yield."""
        generator = self._call(hook)
        if generator is not None:  # None: it is not due, or is for every stage and asks for what is not alive here
            callers.enter(hook, generator)
            self.suspended = (*self.suspended, (hook, generator))
            self.phase = OPEN_WITH_MORE

    # ---- the end -----------------------------------------------------------------------------------------------

    def _end_failed(self, error: BaseException | None) -> None:
        """After an error in the body, or while stages inside this one are open."""
        if self.phase == CLOSED:  # an outer stage has unwound this one, and said so
            return
        self._store.require_own_strand()
        if self._store.notes_errors and isinstance(error, Exception):
            self._say_where(error)
        failures = Failures(self.name, error)
        while self._store.innermost is not self:
            self._unwind_inner(failures)
        self._end(failures, self._plan.post)
        _raise(failures, error)

    def _end_rest(self) -> None:
        """After the post hooks, where there is more to end than the fixtures."""
        failures = Failures(self.name)
        self._end(failures, ())
        _raise(failures)

    def _end(self, failures: Failures, hooks: Iterable[Hook]) -> None:
        """The ``@always`` hooks, the around-hooks in reverse and, whatever they did, the end of the fixtures."""
        try:
            for hook in hooks:
                if hook.always:
                    self._guarded(failures, hook, self._call, hook)
            while self.suspended:
                *rest, (caller, generator) = self.suspended
                self.suspended = tuple(rest)
                self._guarded(failures, caller, self._resume, caller, generator, failures.first())
        finally:
            if self.kept:
                self.kept = {name: getattr(self._store.cells.get(name), "value", None) for name in self.kept}
            self._store.close_scope(self)

    def _guarded(self, failures: Failures, caller: Hook | Provider, do: Callable[..., None], *args: Any) -> None:
        """Do one thing of the end, which can see what has failed so far, and note if it fails itself."""
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
        inner._end(inner_failures, inner._plan.post)
        failures.add(inner_failures.outcome() or error)

    # ---- hooks -------------------------------------------------------------------------------------------------

    def _call(self, hook: Hook) -> Any:
        """Call a hook, known to be running, with the fixtures it names; hand on what it returns."""
        store = self._store
        if hook.everywhere and not self._is_alive(hook):
            return None
        for _, is_due in hook.gates:
            if not is_due(store):
                return None
        try:
            returned = hook.call(store)
        finally:
            if hook.gates and hook.side != "around":
                _finished(hook)
        if hook.writes:
            write(store, hook, self, returned)
        return returned

    def _is_alive(self, hook: Hook) -> bool:
        """Whether all that a hook and its gates ask for and modify is alive."""
        wanted = [target.name for target in hook.writes if not target.defines]
        wanted += [name for _, is_due in hook.gates for name in is_due.required]
        return not hook.call.missing(self._store) and all(map(self._store.has, wanted))

    def _resume(self, suspended: Hook | Provider, generator: Any, error: BaseException | None) -> None:
        """Let a hook or a provider do what stands after its yield."""
        if isinstance(suspended, Hook):
            try:
                callers.leave(suspended, generator, error)
            finally:
                _finished(suspended)
        else:
            clean_up(suspended, generator)

    def _told(self, error: BaseException) -> BaseException:
        """The error of the hook that was running, with a note that says which, and where."""
        store = self._store
        caller, store.running = store.running, None
        if caller is None:
            return error
        absent = dispatch.name_not_found(error)
        if absent is not None:
            error = caller.call.not_found(store, absent)
        kind = "hook" if isinstance(caller, Hook) else "fixture"
        error.add_note(f"in {kind} {caller.label} of {caller.whose}, at stage {' > '.join(self.path)}")
        return error

    def _say_where(self, error: Exception) -> None:
        """Note at which stage the body has failed, where nothing else says it; the errors of this library do."""
        known = isinstance(error, Skip | TrainManagerError)
        if not known and not any("at stage " in note for note in getattr(error, "__notes__", ())):
            error.add_note(f"at stage {' > '.join(self.path)}")

    def _refuse_opening(self) -> None:
        if self.phase not in (NEW, TAKEN):
            what = f"stage {self.name!r} was opened a second time from one `staged(...)`"
            cure = "call `self.staged(...)` anew in each `with`"
        elif self._store.running is not None:
            what = f"{self._store.running.label} opens stage {self.name!r} of the extensible that is calling it"
            cure = "hooks run around stages and open none; open the stage in a method of the extensible"
        else:
            return
        raise StageError(what, name=self.name, asked_at=line_of(self.opened_at), stages=self._store.path, cure=cure)


def new_stage(name: str, place: Place, store: Store) -> Stage:
    """One to be opened, where none is spare; where it was asked for is still to be set."""
    if place.stage is not None and place.stage.phase is TAKEN:  # it may open inside this one
        place.stage.phase = NEW
    stage = place.stage = Stage()
    stage.name = name
    stage.code = new_stage.__code__
    stage.suspends = False
    stage._plan = _NO_PLAN
    stage.phase = NEW
    stage.first = stage.same_name = stage.hidden = None
    stage.suspended = ()
    stage.kept = _NOTHING
    stage._place = place
    stage._store = store
    return stage


def _finished(hook: Hook) -> None:
    for gate, _ in hook.gates:
        gate.finished()


def _after(ran: Caller | None, hooks: Sequence[Hook]) -> Sequence[Hook]:
    """The hooks that stand after the one that ran last."""
    place = next((place for place, hook in enumerate(hooks, start=1) if hook is ran), 0)
    return hooks[place:]


def _raise(failures: Failures, error: BaseException | None = None) -> None:
    """Raise what comes out of a stage; where that is the error of its body, `with` does it."""
    outcome = failures.outcome()
    if outcome is not None and outcome is not error:
        try:
            raise outcome
        finally:
            del outcome  # its traceback knows this frame, and would keep it and all that it saw alive
