"""Extensions that come or go while a run is open: they get its pre hooks as they come, its post hooks as they go.

One that pauses lets go of what its around-hooks hold, and takes it again afterwards.

``Options.joined`` names the stage that is joined late; ``Registry`` calls this after each change of the extensions.
Fixtures that an extension has defined in that stage live on when it goes, until the stage ends or an extension that
comes later provides them anew.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from types import TracebackType
from typing import final

from train_manager.core import messages
from train_manager.core.hooks import Hook
from train_manager.core.outcome import Failures
from train_manager.core.providers import LazyFixture, Provider
from train_manager.core.stage import Stage
from train_manager.core.state import Alive
from train_manager.core.store import Store

Hooks = Sequence[Hook]
Providers = Sequence[Provider]


@final
class Joining:
    """Lets extensions join and leave the open stage that the options name; without such a stage it does nothing."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def when_open(self, do: Callable[[], None]) -> None:
        """Do it now if the stage is open; as soon as its pre hooks have run if it opens; never if it is ending."""
        stage = self._store.open.get(self._store.options.joined)
        if stage is None:
            return
        self._store.require_own_thread()
        extras = stage.add_extras()
        if extras.is_joinable:
            do()
        elif not extras.is_ending:
            extras.waiting.append(do)

    def join(self, hooks: Hooks, providers: Providers) -> None:
        """Define their lazy fixtures and run their pre hooks; after an error they leave as from a stage that failed."""
        stage = self._stage()
        self._store.bring_all()  # lazy fixtures of the plan before, whose extensions may have left
        stage._plan = plan = self._store.plan_of(stage.name)
        try:
            self._define([found for found in plan.providers.values() if _is_in(providers, found)], stage)
            here = [hook for hook in (*plan.around, *plan.pre, *plan.post) if _is_in(hooks, hook)]
            for schedule in (schedule for hook in here for schedule, _ in hook.schedules):
                schedule.opened(stage, Alive(self._store))
            self._run([hook for hook in here if hook.kind != "post"], stage)
        except BaseException as error:
            self._leave(hooks, providers, stage, Failures(stage.name, error))
            raise

    def leave(self, hooks: Hooks, providers: Providers) -> None:
        """Run their post hooks, and leave their around-hooks."""
        stage = self._stage()
        failures = Failures(stage.name)
        self._leave(hooks, providers, stage, failures)
        _raise(failures)

    def let_go(self, hooks: Hooks) -> None:
        """Leave their around-hooks in all open stages, the innermost first: their extensions pause."""
        failures = Failures(self._store.options.joined)
        for stage in self._stages():
            stage.add_extras().resting += self._leave_around(hooks, stage, failures)
        _raise(failures)

    def take_again(self, hooks: Hooks) -> None:
        """Enter those again that were left so, in the stages that are still open."""
        failures = Failures(self._store.options.joined)
        for stage in reversed(self._stages()):
            extras = stage.add_extras()
            again = [hook for hook in extras.resting if _is_in(hooks, hook)]
            extras.resting = [hook for hook in extras.resting if not _is_in(hooks, hook)]
            with _Inside(self._store, stage):
                for hook in again:
                    stage._guarded(failures, hook, stage._enter, hook)
        _raise(failures)

    def _stages(self) -> list[Stage]:
        """Return the open stages, the innermost first."""
        found, scope = [], self._store.innermost
        while isinstance(scope, Stage):
            found.append(scope)
            scope = scope.parent
        return found

    def _stage(self) -> Stage:
        stage = self._store.open[self._store.options.joined]
        assert isinstance(stage, Stage), "only stages are opened by name"
        return stage

    def _define(self, providers: Providers, stage: Stage) -> None:
        """Define lazy fixtures, also in place of those of extensions that have left."""
        store = self._store
        cells = [(store.cell(provider.name), provider) for provider in providers]
        for cell, provider in cells:
            if cell.owner is not None and not (cell.owner is stage and stage.may_renew(cell, provider)):
                raise messages.exists(store, cell.name, provider)
        for cell, provider in cells:
            if cell.owner is None:
                stage.own(cell, provider)
            elif hasattr(cell, "value"):
                del cell.value
            cell.definer = provider
            cell.compute = LazyFixture(provider, store)

    def _run(self, hooks: Hooks, stage: Stage) -> None:
        """Run pre hooks, and around-hooks to their yield."""
        store = self._store
        with _Inside(store, stage):
            for hook in hooks:
                store.running = hook
                try:
                    (stage._enter if hook.kind == "around" else stage._call)(hook)
                except BaseException as error:
                    raise stage._told(error)  # noqa: B904  # the same error, with a note

    def _leave(self, hooks: Hooks, providers: Providers, stage: Stage, failures: Failures) -> None:
        """Run post hooks, after a failure only ``@always`` ones, and leave around-hooks; all failures are noted."""
        extras = stage.add_extras()
        extras.left += [*(hook for hook in hooks if hook.writes), *providers]
        post = [hook for hook in hooks if hook.kind == "post" and hook.runs_at(stage.name)]
        in_order = [hook for hook in stage._plan.post if _is_in(post, hook)]
        paused = [hook for hook in post if not _is_in(in_order, hook)]
        with _Inside(self._store, stage):
            for hook in (*in_order, *paused):
                if hook.always or failures.first() is None:
                    stage._guarded(failures, hook, stage._call, hook)
        self._leave_around(hooks, stage, failures)

    def _leave_around(self, hooks: Hooks, stage: Stage, failures: Failures) -> list[Hook]:
        """Leave those that wait at their yield, the last one first; return them in the order in which they came."""
        suspended = stage.add_extras().suspended
        left = [one for one in reversed(suspended) if _is_in(hooks, one[0])]
        with _Inside(self._store, stage):
            for caller, generator in left:
                suspended.remove((caller, generator))
                stage._guarded(failures, caller, stage._resume, caller, generator, failures.first())
        return [caller for caller, _ in reversed(left)]


@final
class _Inside(AbstractContextManager[None]):
    """The hooks of a stage run as if no stage were open inside it, perhaps in the middle of another hook."""

    def __init__(self, store: Store, stage: Stage) -> None:
        self._store = store
        self._before = store.innermost, store.running
        store.innermost = stage

    def __exit__(
        self, exc_type: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._store.innermost, self._store.running = self._before


def _raise(failures: Failures) -> None:
    outcome = failures.outcome()
    if outcome is not None:
        raise outcome


def _is_in(found: Sequence[object], one: object) -> bool:
    """Return whether this very object is among them: hooks of two extensions may be equal."""
    return any(other is one for other in found)
