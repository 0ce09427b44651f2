"""Extensions that come or go while a run is open: they get its pre hooks late, and its post hooks early.

The around-hooks of an extension that pauses end, and are entered again when it resumes.

``Options.joined`` names the stage that extensions may join late; ``Registry`` calls ``Joining`` after each change of
the extensions. If an extension goes, the fixtures that it has defined in that stage live on until the stage ends, or
until an extension that comes later provides them anew.
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
from train_manager.core.store import Store

Hooks = Sequence[Hook]
Providers = Sequence[Provider]


@final
class Joining:
    """Lets extensions join and leave the open stage that the options name; without such a stage it does nothing."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def when_open(self, do: Callable[[], None]) -> None:
        """Call a function as soon as the joined stage has run its pre hooks; never if it is closed or ends."""
        stage = self._store.open.get(self._store.options.joined)
        if stage is None:
            return
        self._store.require_own_thread()
        extras = stage.add_extras()
        if extras.is_joinable:
            do()
        elif not extras.is_ending:  # its pre hooks run: later ones may define fixtures that the newcomer needs
            extras.waiting.append(do)

    def join(self, hooks: Hooks, providers: Providers) -> None:
        """Define the lazy fixtures of extensions that come, and run their pre hooks."""
        stage = self._stage()
        # The stage finds lazy fixtures that wait by its plan. Those of the old plan, whose extensions may have left,
        # must be written before the plan changes.
        self._store.bring_all()
        stage._plan = plan = self._store.plan_of(stage.name)
        try:
            self._define([found for found in plan.providers.values() if _is_in(providers, found)], stage)
            here = [hook for hook in (*plan.around, *plan.pre, *plan.post) if _is_in(hooks, hook)]
            for schedule in (schedule for hook in here for schedule, _ in hook.schedules):
                schedule.opened(stage, self._store.value("fixtures"))
            self._run([hook for hook in here if hook.kind != "post"], stage)
        except BaseException as error:  # the extensions leave, as from a stage that has failed
            self._leave(hooks, providers, stage, Failures(stage.name, error))
            raise

    def leave(self, hooks: Hooks, providers: Providers) -> None:
        """Run the post hooks of extensions that go, and the rest of their around-hooks."""
        stage = self._stage()
        failures = Failures(stage.name)
        self._leave(hooks, providers, stage, failures)
        _raise(failures)

    def let_go(self, hooks: Hooks) -> None:
        """Run the rest of the around-hooks of pausing extensions, in all open stages, the innermost first."""
        failures = Failures(self._store.options.joined)
        for stage in self._stages():
            stage.add_extras().resting += self._leave_around(hooks, stage, failures)
        _raise(failures)

    def take_again(self, hooks: Hooks) -> None:
        """Enter the around-hooks again that ``let_go`` has left, in the stages that are still open."""
        failures = Failures(self._store.options.joined)
        for stage in reversed(self._stages()):  # the outermost first, as the stages were opened
            extras = stage.add_extras()
            again = [hook for hook in extras.resting if _is_in(hooks, hook)]
            extras.resting = [hook for hook in extras.resting if not _is_in(hooks, hook)]
            with _Inside(self._store, stage):
                for hook in again:
                    stage._run_guarded(failures, hook, stage._enter, hook)
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
        """Define lazy fixtures, also in place of the fixtures of extensions that have left."""
        store = self._store
        cells = [(store.cell(provider.name), provider) for provider in providers]
        # All refusals come before the first change.
        for cell, provider in cells:
            if cell.owner is not None and not (cell.owner is stage and stage.may_renew(cell, provider)):
                raise messages.exists_error(store, cell.name, provider)
        for cell, provider in cells:
            if cell.owner is None:
                stage.own(cell, provider)
            elif hasattr(cell, "value"):
                del cell.value
            cell.definer = provider
            cell.compute = LazyFixture(provider, store)

    def _run(self, hooks: Hooks, stage: Stage) -> None:
        """Run pre hooks, and around-hooks to their ``yield``."""
        store = self._store
        with _Inside(store, stage):
            for hook in hooks:
                store.running = hook
                try:
                    (stage._enter if hook.kind == "around" else stage._call)(hook)
                except BaseException as error:
                    raise stage._annotate(error)  # noqa: B904  # the same error, with a note

    def _leave(self, hooks: Hooks, providers: Providers, stage: Stage, failures: Failures) -> None:
        """Run post hooks, after a failure only ``@always`` ones, and the rest of around-hooks; note all failures."""
        extras = stage.add_extras()
        # Noted first: what these hooks and providers have defined may now be provided anew (`Scope.may_renew`).
        extras.left += [*(hook for hook in hooks if hook.writes), *providers]
        post = [hook for hook in hooks if hook.kind == "post" and hook.runs_at(stage.name)]
        # The plan orders the hooks. It lacks the hooks of an extension that pauses, which run last.
        in_order = [hook for hook in stage._plan.post if _is_in(post, hook)]
        paused = [hook for hook in post if not _is_in(in_order, hook)]
        with _Inside(self._store, stage):
            for hook in (*in_order, *paused):
                if hook.always or failures.first() is None:
                    stage._run_guarded(failures, hook, stage._call, hook)
        self._leave_around(hooks, stage, failures)

    def _leave_around(self, hooks: Hooks, stage: Stage, failures: Failures) -> list[Hook]:
        """Run the rest of around-hooks that wait at their ``yield``, the last first; return them, the first first."""
        suspended = stage.add_extras().suspended
        left = [one for one in reversed(suspended) if _is_in(hooks, one[0])]
        with _Inside(self._store, stage):
            for caller, generator in left:
                suspended.remove((caller, generator))  # before it runs: the end of the stage must not run it again
                stage._run_guarded(failures, caller, stage._resume, caller, generator, failures.first())
        return [caller for caller, _ in reversed(left)]


@final
class _Inside(AbstractContextManager[None]):
    """Makes a stage the innermost one for a ``with`` block, in which its hooks run, perhaps inside of another hook.

    At the end, the stages that are open inside it, and the hook that was running, are put back.
    """

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
    """Return whether an object is in a sequence, by ``is``: hooks of two extensions may be equal."""
    return any(other is one for other in found)
