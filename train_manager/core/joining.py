"""Extensions that come or go while a run is open: they get its pre hooks late, and its post hooks early.

``Options.joined`` names the stage that extensions may join late; ``Registry`` changes the plan of the open stage
between ``leave`` and ``join``. If an extension goes, the fixtures that it has provided in that stage die at once.

The around-hooks of an extension that pauses end in all open stages, and are entered again when it resumes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from train_manager.core import messages
from train_manager.core.hooks import Hook
from train_manager.core.outcome import Failures
from train_manager.core.providers import LazyFixture, Provider
from train_manager.core.stage import Stage
from train_manager.core.store import Store
from train_manager.telling.errors import StageError

Hooks = Sequence[Hook]
Providers = Sequence[Provider]


def joined_stage(store: Store) -> Stage | None:
    """Return the open stage that extensions may join and leave; refuse a change by the hooks of that stage."""
    stage = store.open.get(store.options.joined)
    if not isinstance(stage, Stage):
        return None
    store.require_own_thread()
    running = store.running
    if running is not None and store.innermost is stage:  # its hooks run, so that their list is fixed
        raise StageError(
            f"{running.label} changes the extensions while stage {stage.name!r} opens or ends",
            asked_by=running.label,
            asked_at=running.call.defined_at,
            stages=stage.path,
            cure=f"change them before stage {stage.name!r} opens, or in a hook of a stage inside it",
        )
    return stage


def refuse_in_closed_stage(store: Store) -> None:
    """Refuse a change of the extensions inside a stage that runs closed, as it has passed the place of their hooks."""
    closed = None if store.innermost is None else store.innermost.inner_stage
    if closed is not None:
        what = f"the extensions are changed inside stage {closed.name!r}, which is too late for their hooks"
        cure = "do so in a hook of a stage around it, or between two calls"
        raise StageError(what, name=closed.name, stages=store.path, cure=cure)


def open_stages(store: Store) -> list[Stage]:
    """Return the open stages, the innermost first; none unless one of them is the stage that extensions join."""
    stages = store.scopes() if joined_stage(store) is not None else []
    return [stage for stage in stages if isinstance(stage, Stage)]


def join(stage: Stage, hooks: Hooks, providers: Providers, failures: Failures) -> None:
    """Define the lazy fixtures of extensions that come, and run their pre hooks, up to the first that fails."""
    store, plan = stage._store, stage._plan
    cells = [(store.cell(name), provider) for name, provider in plan.providers.items() if provider in providers]
    for cell, provider in cells:  # all refusals come before the first change
        if cell.owner is not None:
            raise messages.exists_error(store, cell.name, provider)
    for cell, provider in cells:
        stage.own(cell, provider)
        cell.compute = LazyFixture(provider, store)
    here = [hook for hook in (*plan.around, *plan.pre, *plan.post) if hook in hooks]
    for schedule in (schedule for hook in here for schedule, _ in hook.schedules):
        schedule.opened(stage, store.value("fixtures"))
    with _inside(stage):
        for hook in here:
            if hook.kind != "post" and failures.first() is None:
                enter = stage._enter if hook.kind == "around" else stage._call
                stage._run_guarded(failures, hook, enter, hook)


def post_hooks(stage: Stage, hooks: Hooks) -> list[Hook]:
    """Return the post hooks of extensions that go, in their order."""
    in_order = [hook for hook in stage._plan.post if hook in hooks]
    # The plan lacks the hooks of an extension that pauses, which run last.
    paused = [hook for hook in hooks if hook.kind == "post" and hook.runs_at(stage.name) and hook not in in_order]
    return [*in_order, *paused]


def leave(stage: Stage, hooks: Hooks, providers: Providers, post: list[Hook], failures: Failures) -> None:
    """Run post hooks of extensions that go, after a failure only ``@always`` ones; then their fixtures die.

    Each hook leaves the list ``post`` as it is done: after Ctrl-C between two of them, a second call runs the rest.
    """
    with _inside(stage):
        while post:
            if post[0].always or failures.first() is None:
                stage._run_guarded(failures, post[0], stage._call, post[0])
            post.pop(0)
    let_go(stage, [*hooks, *providers], failures)
    stage.disown([cell for cell in stage.cells() if cell.definer in [*hooks, *providers]])


def let_go(stage: Stage, callers: Sequence[Hook | Provider], failures: Failures) -> None:
    """Run the rest of around-hooks, and of lazy fixtures, that wait at their ``yield``, the last first."""
    with _inside(stage):
        stage._let_go(failures, callers)


def take_again(stage: Stage, hooks: Hooks, failures: Failures) -> None:
    """Enter the around-hooks of extensions that resume."""
    with _inside(stage):
        for hook in stage._plan.around:
            if hook in hooks:
                stage._run_guarded(failures, hook, stage._enter, hook)


@contextmanager
def _inside(stage: Stage) -> Iterator[None]:
    """Make a stage the innermost one for a ``with`` block, in which its hooks run, perhaps inside of another hook."""
    store = stage._store
    before, store.innermost = (store.innermost, store.running), stage
    try:
        yield
    finally:
        store.innermost, store.running = before
