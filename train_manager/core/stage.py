"""A stage: a ``with`` block that opens a scope, and runs the hooks of its plan around the block.

    around-hooks enter -> pre hooks -> body -> post hooks -> around-hooks leave, in reverse -> the fixtures die

After a failure anywhere on this way only ``@always`` hooks still run; around-hooks get the error at their yield.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType, TracebackType
from typing import Any, final

from train_manager.core import around
from train_manager.core.errors import StageError
from train_manager.core.failures import Failures
from train_manager.core.hook import Hook
from train_manager.core.plan import Plan
from train_manager.core.provider import Provider, clean_up, promises
from train_manager.core.registry import Registry
from train_manager.core.scope import Scope, strand
from train_manager.core.sharing import refuse_if_busy
from train_manager.core.skip import SkipStage
from train_manager.core.source import Site, line_of
from train_manager.core.state import FAILURE
from train_manager.core.store import Store
from train_manager.core.writes import write


@final
class Stage(Scope):
    """What ``with self.staged(name, ...)`` opens and ends. Made by ``Extensible.staged``.

    Not a generator-made context manager: one that is abandoned half-way would close the wrong scope when it is
    collected, and costs six times as much.
    """

    __slots__ = ("_defaults", "_given", "_plan", "_registry", "_store")

    _plan: Plan
    kept: Mapping[str, Any] = MappingProxyType({})
    """The fixtures that outlive the stage because its opener has asked for them."""

    def __init__(
        self,
        name: str,
        opened_at: Site,
        store: Store,
        registry: Registry,
        given: Mapping[str, Any] | None,
        defaults: Mapping[str, Any] | None,
    ) -> None:
        self.name = name  # all that a Scope sets, written out: every stage pays for a call of its __init__
        self.opened_at = opened_at
        self.is_open = None
        self.owned = {}
        self._store = store
        self._registry = registry
        self._given = given
        self._defaults = defaults

    def __enter__(self) -> Stage:
        if self.is_open is not None or self._store.running is not None:
            self._refuse_opening()
        if self._store.shares and self._store.innermost is None:
            refuse_if_busy(self._registry.extensions.values(), self._store)
        self._plan = self._registry.plans[self.name]
        given, defaults = self._given, self._defaults
        self._given = self._defaults = None  # `with` keeps this object; the values must not outlive the stage
        self._store.open_scope(self, given, defaults)
        try:
            if self._plan.providers:
                self._store.promise(self, promises(self._plan.providers, self, self._store))
            for hook in self._plan.around:
                self._enter_around(hook)
            for hook in self._plan.pre:
                self._call(hook)
        except BaseException as error:
            if isinstance(error, SkipStage):
                error.path = self.path
            failures = Failures(self.name)
            failures.add(error)
        else:
            return self
        self._end(failures)
        raise failures.outcome() or AssertionError("a failure has an outcome")

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self.is_open is False:  # an outer stage has unwound this one, and said so
            return
        if self._store.strand != strand():
            self._store.require_own_strand()
        unattended = not (self._plan.post or self.suspended or self.kept)
        if error is None and unattended and self._store.innermost is self:
            self._store.close_scope(self)  # nothing is left to do
            return
        failures = Failures(self.name, error)
        while self._store.innermost is not self:
            self._unwind_inner(failures)
        self._end(failures)
        outcome = failures.outcome()
        if outcome is not None and outcome is not error:
            try:
                raise outcome
            finally:
                del outcome  # its traceback knows this frame, and would keep it and all that it saw alive

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

    # ---- the end -----------------------------------------------------------------------------------------------

    def _end(self, failures: Failures) -> None:
        """Post hooks, around-hooks in reverse, and then, whatever they did, the end of the fixtures."""
        try:
            failed = bool(failures)
            for hook in self._plan.post:
                if failed:
                    if hook.always:
                        self._guarded(failures, self._call, hook)
                    continue
                try:
                    self._call(hook)
                except BaseException as raised:
                    failures.add(raised)
                    failed = True
            while self.suspended:
                *rest, (caller, generator) = self.suspended
                self.suspended = tuple(rest)
                self._guarded(failures, self._resume, caller, generator, failures.first())
        finally:
            if self.kept:
                self.kept = {name: self._store.alive.get(name) for name in self.kept}
            self._store.close_scope(self)

    def _guarded(self, failures: Failures, do: Callable[..., None], *args: Any) -> None:
        """Do one thing of the end, which can see what has failed so far, and note if it fails itself."""
        alive, error = self._store.alive, failures.first()
        try:
            if error is not None:
                alive.update(zip(FAILURE, (type(error), error, error.__traceback__), strict=True))
            do(*args)
        except BaseException as raised:
            failures.add(raised)
        finally:
            if error is not None:
                alive.update(dict.fromkeys(FAILURE))

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
        inner._end(inner_failures)
        failures.add(inner_failures.outcome() or error)

    # ---- hooks -------------------------------------------------------------------------------------------------

    def _call(self, hook: Hook) -> Any:
        """Call a hook with the fixtures it names, and hand on what it returns; its error says which hook it was."""
        if hook.everywhere and not self._is_alive(hook):
            return None
        store = self._store
        store.running = hook
        try:
            returned = hook.call(store)
            if hook.writes:
                write(store, hook, self, returned)
            return returned
        except BaseException as error:
            self._note(error, hook)
            raise
        finally:
            store.running = None

    def _is_alive(self, hook: Hook) -> bool:
        """Whether all that a hook asks for and modifies is alive."""
        modified = [target.name for target in hook.writes if not target.defines]
        return not hook.call.missing(self._store) and all(map(self._store.alive.has, modified))

    def _enter_around(self, hook: Hook) -> None:
        generator = self._call(hook)
        if generator is not None:  # None: it is for every stage, and what it asks for is not alive here
            self._run(hook, around.enter, hook, generator)
            self.suspended = (*self.suspended, (hook, generator))

    def _resume(self, suspended: Hook | Provider, generator: Any, error: BaseException | None) -> None:
        """Let a hook or a provider do what stands after its yield."""
        if isinstance(suspended, Hook):
            self._run(suspended, around.leave, suspended, generator, error)
        else:
            self._run(suspended, clean_up, suspended, generator)

    def _run(self, caller: Hook | Provider, step: Callable[..., Any], *args: Any) -> Any:
        """Run a part of a hook, known to be running; its error gets a note that says which hook it was, and where."""
        self._store.running = caller
        try:
            return step(*args)
        except BaseException as error:
            self._note(error, caller)
            raise
        finally:
            self._store.running = None

    def _note(self, error: BaseException, caller: Hook | Provider) -> None:
        kind = "hook" if isinstance(caller, Hook) else "fixture"
        error.add_note(f"in {kind} {caller.label} of {caller.whose}, at stage {' > '.join(self.path)}")

    def _refuse_opening(self) -> None:
        if self.is_open is not None:
            what = f"stage {self.name!r} was opened a second time from one `staged(...)`"
            cure = "call `self.staged(...)` anew in each `with`"
        elif self._store.running is not None:
            what = f"{self._store.running.label} opens stage {self.name!r} of the extensible that is calling it"
            cure = "hooks run around stages and open none; open the stage in a method of the extensible"
        else:
            return
        raise StageError(what, name=self.name, asked_at=line_of(self.opened_at), stages=self._store.path, cure=cure)
