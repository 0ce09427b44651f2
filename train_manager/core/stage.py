"""A stage: a ``with`` block that opens a scope, and runs the hooks of its plan around the block.

    around-hooks enter -> pre hooks -> body -> post hooks -> around-hooks leave, in reverse -> the fixtures die

After a failure anywhere on this way only ``@always`` hooks still run; around-hooks get the error at their yield.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Any, final

from train_manager.core import around
from train_manager.core.errors import StageError
from train_manager.core.failures import Failures
from train_manager.core.fixtures import FAILURE, Fixtures
from train_manager.core.hook import Hook
from train_manager.core.plan import Plan, Plans
from train_manager.core.scope import Scope
from train_manager.core.skip import SkipStage
from train_manager.core.source import Site, line_of


@final
class Stage(Scope):
    """What ``with self.staged(name, ...)`` opens and ends. Made by ``Extensible.staged``.

    Not a generator-made context manager: one that is abandoned half-way would close the wrong scope when it is
    collected, and costs six times as much.
    """

    __slots__ = ("_defaults", "_fixtures", "_given", "_left", "_plan", "_plans", "_suspended")

    _plan: Plan

    def __init__(
        self,
        name: str,
        opened_at: Site,
        fixtures: Fixtures,
        plans: Plans,
        given: Mapping[str, Any] | None,
        defaults: Mapping[str, Any] | None,
    ) -> None:
        super().__init__(name, opened_at)
        self._fixtures = fixtures
        self._plans = plans
        self._given = given
        self._defaults = defaults
        self._suspended: list[tuple[Hook, around.Suspended]] = []  # entered around-hooks
        self._left = False

    def __enter__(self) -> Stage:
        self._refuse_opening()
        self._plan = self._plans[self.name]
        given, defaults = self._given, self._defaults
        self._given = self._defaults = None  # `with` keeps this object; the values must not outlive the stage
        failures = Failures(self.name)
        self._fixtures.open_scope(self, given, defaults)
        try:
            for hook in self._plan.around:
                self._enter_around(hook)
            for hook in self._plan.pre:
                self._call(hook)
        except BaseException as error:
            if isinstance(error, SkipStage):
                error.path = self.path
            failures.add(error)
        if failures:
            self._end(failures)
            raise failures.outcome() or AssertionError("a failure has an outcome")
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._left:  # an outer stage has unwound this one, and said so
            return
        self._fixtures.require_own_strand()
        failures = Failures(self.name, error)
        while self._fixtures.innermost is not self:
            self._unwind_inner(failures)
        self._end(failures)
        outcome = failures.outcome()
        if outcome is not None and outcome is not error:
            try:
                raise outcome
            finally:
                del outcome  # its traceback knows this frame, and would keep it and all that it saw alive

    # ---- the end -----------------------------------------------------------------------------------------------

    def _end(self, failures: Failures) -> None:
        """Post hooks, around-hooks in reverse, and then, whatever they did, the end of the fixtures."""
        try:
            for hook in self._plan.post:
                if hook.always or not failures:
                    self._guarded(failures, self._call, hook)
            while self._suspended:
                self._guarded(failures, self._leave_around, *self._suspended.pop(), failures.first())
        finally:
            self._left = True
            self._fixtures.close_scope(self)

    def _guarded(self, failures: Failures, do: Callable[..., None], *args: Any) -> None:
        """Do one thing of the end, which can see what has failed so far, and note if it fails itself."""
        alive, error = self._fixtures.alive, failures.first()
        try:
            if error is not None:
                alive.update(zip(FAILURE, (type(error), error, error.__traceback__), strict=True))
            do(*args)
        except BaseException as raised:
            failures.add(raised)
        finally:
            alive.update(dict.fromkeys(FAILURE))

    def _unwind_inner(self, failures: Failures) -> None:
        """End the innermost stage by force: its block goes on, in a generator that was not finished."""
        inner = self._fixtures.innermost
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
        """Call a hook with the fixtures it names; one for every stage only where they are alive."""
        if hook.everywhere and hook.call.missing(self._fixtures):
            return None
        return self._run(hook, hook.call, self._fixtures)

    def _enter_around(self, hook: Hook) -> None:
        generator = self._call(hook)
        if generator is not None:  # None: it is for every stage, and what it asks for is not alive here
            self._run(hook, around.enter, hook, generator)
            self._suspended.append((hook, generator))

    def _leave_around(self, hook: Hook, generator: around.Suspended, error: BaseException | None) -> None:
        self._run(hook, around.leave, hook, generator, error)

    def _run(self, hook: Hook, step: Callable[..., Any], *args: Any) -> Any:
        """Run a part of a hook, known to be running; its error gets a note that says which hook it was, and where."""
        self._fixtures.running = hook.label
        try:
            return step(*args)
        except BaseException as error:
            owner = f"extension {hook.owner!r}" if hook.owner else "the extensible itself"
            error.add_note(f"in hook {hook.label} of {owner}, at stage {' > '.join(self.path)}")
            raise
        finally:
            self._fixtures.running = ""

    def _refuse_opening(self) -> None:
        if self.is_open or self._left:
            what = f"stage {self.name!r} was opened a second time from one `staged(...)`"
            cure = "call `self.staged(...)` anew in each `with`"
        elif self._fixtures.running:
            what = f"{self._fixtures.running} opens stage {self.name!r} of the extensible that is calling it"
            cure = "hooks run around stages and open none; open the stage in a method of the extensible"
        else:
            return
        raise StageError(what, name=self.name, asked_at=line_of(self.opened_at), stages=self._fixtures.path, cure=cure)
