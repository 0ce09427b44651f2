"""The extensions of one Extensible, by name, and their hooks and providers.

An extension may come or go while a run is open: it gets the run's pre hooks late, and its post hooks early.
``Options.joined`` names the stage that extensions may join late; its plan changes between ``_leave`` and ``_join``. If
an extension goes, the fixtures that it has provided in that stage die at once. The around-hooks of an extension that
pauses end in all open stages, and are entered again when it resumes.

This file also has the class attributes ``extensions`` and ``strict``, and the extensions that installed packages offer.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import MappingProxyType
from typing import Any, Final, NamedTuple, NoReturn, TypeVar, final

from train_manager.core.extension import Extension, note_shared, require_extension, sole_class, sole_name
from train_manager.core.hooks import Hook, Provider, read_hooks, read_providers
from train_manager.core.outcome import Failures
from train_manager.core.plan import LazyFixture, Plans
from train_manager.core.stage import Stage
from train_manager.core.store import Store
from train_manager.core.watcher import Watcher, watch_by
from train_manager.telling.errors import ExtensionNotFound, HookError, StageError, did_you_mean, near

A = TypeVar("A")
E = TypeVar("E", bound=Extension)

GROUP: Final = "train_manager.extensions"  # of entry points in the metadata of packages

Found = tuple[list[Hook], list[Provider]]
"""The hooks and providers of one object."""


class Added(NamedTuple):
    """An extension with the hooks and providers that were read from it."""

    extension: Extension
    hooks: Sequence[Hook]
    providers: Sequence[Provider]


@final
class Registry:
    """The extensions of one Extensible; every change of them makes new plans.

    Args:
        holder: the Extensible; its own methods are hooks and providers too.
        store: the state of the Extensible.
        approve: called after each change; if it raises, the change is taken back.
    """

    def __init__(self, holder: object, store: Store, approve: Callable[[], None]) -> None:
        self.extensions: dict[str, Extension] = {}  # by name, in the order of registration, paused ones too
        self.plans: Plans = Plans(store)
        store.plan_of, store.extensions = self.plans.__getitem__, self.extensions
        self._opener = type(holder)  # the class only: the registry must not keep the object alive
        self._store = store
        self._approve = approve
        self._own: Found = read_hooks(holder, owner=""), read_providers(holder, owner="")
        self._added: dict[str, Added]  # by name; `_use` sets this and the next one
        self._paused: frozenset[str]  # the names of the extensions that pause
        self._rank = 0  # of this process among those that train together
        self._use({}, frozenset())

    @property
    def hooks(self) -> list[Hook]:
        """The hooks that are in use, the Extensible's own first, then as registered; paused extensions have none."""
        return [*self._own[0], *self._all_of(_without(self._added, self._paused))[0]]

    @property
    def providers(self) -> list[Provider]:
        """The providers that are in use, in the same order."""
        return [*self._own[1], *self._all_of(_without(self._added, self._paused))[1]]

    @property
    def idle(self) -> list[Extension]:
        """The extensions that have neither a hook nor a provider, and do not watch."""
        silent = [one.extension for one in self._added.values() if not (one.hooks or one.providers)]
        return [extension for extension in silent if not isinstance(extension, Watcher)]

    def add(self, extensions: Mapping[str, Extension]) -> None:
        """Add all extensions or, on an error, none."""
        # All at once, because the order of the hooks of two extensions may come from a third one.
        found: dict[str, Added] = {}
        together = {**self.extensions, **extensions}
        for name, extension in extensions.items():
            _refuse_twice(extension, name, together)
            self._refuse_second(extension, name, _without(together, self._paused - {name}))
            hooks = read_hooks(extension, name, extension.priority, extension.ranks)
            found[name] = Added(extension, hooks, read_providers(extension, name))
        self._change({**self._added, **found}, self._paused - found.keys())

    def _refuse_second(self, extension: Extension, name: str, extensions: Mapping[str, Extension]) -> None:
        """Refuse a sole extension if another one of its class is there."""
        kind, other = sole_class(extension), sole_name(extension, extensions)
        if kind is not None and other is not None:
            first, second = sorted((name, other), key=list(extensions).index)
            what = f"{first!r} and {second!r} are both of class {kind.__name__}, of which {self._opener.__name__} "
            replace = f'keep one of the two: add_extension(x, "{first}") replaces the first'
            cure = f'{replace}, remove_extension("{first}") removes it'
            raise HookError(f"{what}has at most one", name=second, cure=cure)

    def remove(self, name: str) -> Extension:
        """Remove an extension, and return it."""
        extension = self.find_extension(name)
        left = {other: added for other, added in self._added.items() if other != name}
        # Of one whose hooks the check has left out, what it has found stays true; a check takes 4 ms.
        self._change(left, self._paused - {name}, approved=not extension._checked_before_run)
        return extension

    @property
    def paused(self) -> frozenset[str]:
        """The names of the extensions that pause."""
        return self._paused

    def pause(self, names: Iterable[str]) -> None:
        """Leave the hooks and lazy fixtures of extensions out of the stages that open, until ``resume``.

        The extensions keep their names and their places in the order. A pause is neither a removal nor an addition: it
        runs no post hooks of an open run, and its end no pre hooks. But the around-hooks of open stages end, so that
        they release all that they hold, such as an open file, and begin anew afterwards.
        """
        names = list(names)
        for name in names:
            self.find_extension(name)  # raises for an unknown name
        self._change(self._added, self._paused.union(names))
        failures = Failures(self._store.options.joined)
        for stage in _open_stages(self._store):
            _let_go(stage, self._holding(names), failures)
        failures.raise_outcome()

    def resume(self, names: Iterable[str]) -> None:
        """Bring paused extensions back; one that is not paused stays as it is."""
        names = self._paused.intersection(names)
        self._change(self._added, self._paused.difference(names))
        failures = Failures(self._store.options.joined)
        for stage in reversed(_open_stages(self._store)):
            _take_again(stage, self._holding(names), failures)
        failures.raise_outcome()

    def _holding(self, names: Collection[str]) -> list[Hook]:
        """Return the hooks of the named extensions, without extensions that declare ``keeps_hold``."""
        found = [one for name, one in self._added.items() if name in names and not one.extension.keeps_hold]
        return [hook for one in found for hook in one.hooks]

    def use_rank(self, rank: int) -> None:
        """Leave out the hooks of extensions with ``ranks = 0``, unless this is process 0 of several."""
        if rank != self._rank:
            self._rank = rank
            self._use(self._added, self._paused)

    def find_extension(self, name: str) -> Extension:
        """Return the extension of this name."""
        if name in self.extensions:
            return self.extensions[name]
        raise _not_found(f"{self._opener.__name__} has no extension {name!r}", name, self.extensions, "its extensions")

    def sole(self, kind: type[E]) -> E:
        """Return the only extension of a class or of its subclasses."""
        if not isinstance(kind, type):
            what = f"extension() takes a class, but was given {kind!r:.60}"
            raise HookError(what, name=str(kind), cure=f"take it by its name, as in tm[{kind!r:.60}]")
        found = {name: one for name, one in self.extensions.items() if isinstance(one, kind)}
        if len(found) == 1:
            return next(iter(found.values()))
        opener, wanted = self._opener.__name__, kind.__name__
        if found:
            cure = f"take one by its name, as in tm[{next(iter(found))!r}]"
            what = f"{opener} has {len(found)} extensions of class {wanted}: {', '.join(found)}"
            raise ExtensionNotFound(what, name=wanted, nearest=tuple(found), cure=cure)
        there = ", ".join(f"{name} ({type(one).__name__})" for name, one in self.extensions.items()) or "none"
        cure = f"add one with add_extension; its extensions: {there}"
        raise ExtensionNotFound(f"{opener} has no extension of class {wanted}", name=wanted, cure=cure)

    def _watchers(self) -> dict[str, Watcher]:
        """Return the watchers of this process that do not pause, by name."""
        used = {name: one.extension for name, one in _without(self._added, self._paused).items()}
        return {name: one for name, one in used.items() if isinstance(one, Watcher) and one.ranks in (None, self._rank)}

    def _all_of(self, added: Mapping[str, Added]) -> Found:
        """Return the hooks that run in this process, and the providers of all these extensions."""
        hooks = [hook for one in added.values() for hook in one.hooks if hook.ranks in (None, self._rank)]
        return hooks, [provider for one in added.values() for provider in one.providers]

    # ---- changes -----------------------------------------------------------------------------------------------

    def _change(self, added: dict[str, Added], paused: frozenset[str], *, approved: bool = False) -> None:
        """Change to these extensions; on an error, and on Ctrl-C, an extension is wholly there or not at all."""
        _refuse_in_closed_stage(self._store)
        stage, before = _joined_stage(self._store), (self._added, self._paused)
        gone = Failures(self._store.options.joined)
        try:
            self._use(added, paused)
            if not approved:
                self._approve()
            if stage is not None:
                self._switch(stage, before[0], gone)
        except BaseException:
            if self._added is added:  # `_switch` has not begun, so that the extensions from before are as they were
                self._use(*before)
            raise
        gone.raise_outcome()  # an error of a post hook comes out, but the extension stays removed

    def _use(self, added: dict[str, Added], paused: frozenset[str]) -> None:
        """Use these extensions for all new plans, and list them in ``extensions``; on an error, nothing is changed."""
        hooks, providers = self._all_of(_without(added, paused))
        self.plans.use([*self._own[0], *hooks], [*self._own[1], *providers])
        self._added, self._paused = added, paused
        self._store.watch = watch_by(self._watchers())
        new = [one.extension for name, one in added.items() if self.extensions.get(name) is not one.extension]
        self.extensions.clear()  # the same dict: the store and views refer to it
        self.extensions.update({name: one.extension for name, one in added.items()})
        note_shared(new, self._store)

    def _switch(self, stage: Stage, before: Mapping[str, Added], gone: Failures) -> None:
        """Let extensions leave an open stage, and others join it; ``gone`` notes the errors of those that leave."""
        left = self._all_of(_other_than(self._added, before))
        joined = self._all_of(_other_than(before, self._added))
        post = _post_hooks(stage, left[0])
        try:
            plan = self._store.plan_of(stage.name)
            _leave(stage, *left, post, gone)
            stage._plan, failures = plan, Failures(stage.name)
            _join(stage, *joined, failures)
            failures.raise_outcome()
        except BaseException as error:
            # Those that came leave again, as from a stage that has failed; what they have replaced stays away.
            self._use({name: one for name, one in self._added.items() if before.get(name) is one}, self._paused)
            plan, failures = self._store.plan_of(stage.name), Failures(stage.name, error)
            _leave(stage, *left, post, gone)
            _leave(stage, *joined, _post_hooks(stage, joined[0]), failures)
            stage._plan = plan
            failures.raise_outcome()


def _without(added: Mapping[str, A], names: Collection[str]) -> dict[str, A]:
    return {name: one for name, one in added.items() if name not in names}


def _other_than(these: Mapping[str, Added], added: Mapping[str, Added]) -> dict[str, Added]:
    """Return the extensions of ``added`` that are new beside ``these``, or that replace one of them."""
    return {name: one for name, one in added.items() if these.get(name) is not one}


def _refuse_twice(extension: Extension, name: str, extensions: Mapping[str, Extension]) -> None:
    for taken, there in extensions.items():
        if there is extension and taken != name:
            kind = type(extension).__name__
            raise HookError(
                f"this {kind} is already an extension here, named {taken!r}",
                name=name,
                cure=f"its hooks would run twice; add another {kind}()",
            )


def _not_found(what: str, name: str, offered: Iterable[str], listed: str) -> ExtensionNotFound:
    nearest = near(name, offered)
    cure = did_you_mean(nearest) or f"{listed}: {', '.join(offered) or 'none'}"
    return ExtensionNotFound(what, name=name, nearest=nearest, cure=cure)


# ---- extensions that come or go while a run is open ------------------------------------------------------------------


def _joined_stage(store: Store) -> Stage | None:
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
            asked_at=running.defined_at,
            stages=stage.path,
            cure=f"change them before stage {stage.name!r} opens, or in a hook of a stage inside it",
        )
    return stage


def _refuse_in_closed_stage(store: Store) -> None:
    """Refuse a change of the extensions inside a stage that runs closed, as it has passed the place of their hooks."""
    closed = None if store.innermost is None else store.innermost.inner_stage
    if closed is not None:
        what = f"the extensions are changed inside stage {closed.name!r}, which is too late for their hooks"
        cure = "do so in a hook of a stage around it, or between two calls"
        raise StageError(what, name=closed.name, stages=store.path, cure=cure)


def _open_stages(store: Store) -> list[Stage]:
    """Return the open stages, the innermost first; none unless one of them is the stage that extensions join."""
    stages = store.scopes() if _joined_stage(store) is not None else []
    return [stage for stage in stages if isinstance(stage, Stage)]


def _join(stage: Stage, hooks: Sequence[Hook], providers: Sequence[Provider], failures: Failures) -> None:
    """Define the lazy fixtures of extensions that come, and run their pre hooks, up to the first that fails."""
    store, plan = stage._store, stage._plan
    cells = [(store.cell(name), provider) for name, provider in plan.providers.items() if provider in providers]
    for cell, provider in cells:  # all refusals come before the first change
        if cell.owner is not None:
            raise store.exists_error(cell.name, provider)
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


def _post_hooks(stage: Stage, hooks: Sequence[Hook]) -> list[Hook]:
    """Return the post hooks of extensions that go, in their order."""
    in_order = [hook for hook in stage._plan.post if hook in hooks]
    # The plan lacks the hooks of an extension that pauses, which run last.
    paused = [hook for hook in hooks if hook.kind == "post" and hook.runs_at(stage.name) and hook not in in_order]
    return [*in_order, *paused]


def _leave(
    stage: Stage, hooks: Sequence[Hook], providers: Sequence[Provider], post: list[Hook], failures: Failures
) -> None:
    """Run post hooks of extensions that go, after a failure only ``@always`` ones; then their fixtures die.

    Each hook leaves the list ``post`` as it is done: after Ctrl-C between two of them, a second call runs the rest.
    """
    with _inside(stage):
        while post:
            if post[0].always or failures.first() is None:
                stage._run_guarded(failures, post[0], stage._call, post[0])
            post.pop(0)
    _let_go(stage, [*hooks, *providers], failures)
    stage.disown([cell for cell in stage.cells() if cell.definer in [*hooks, *providers]])


def _let_go(stage: Stage, callers: Sequence[Hook | Provider], failures: Failures) -> None:
    """Run the rest of around-hooks, and of lazy fixtures, that wait at their ``yield``, the last first."""
    with _inside(stage):
        stage._let_go(failures, callers)


def _take_again(stage: Stage, hooks: Sequence[Hook], failures: Failures) -> None:
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


# ---- class attributes of an Extensible -----------------------------------------------------------------------------


@final
class Declared:
    """``extensions`` or ``strict``: the value that a class declares; an object of the class refuses assignments."""

    def __init__(self, name: str, value: Any) -> None:
        self._name = name
        self._value = value

    def __get__(self, holder: Any, owner: type) -> Any:
        if holder is None or self._name == "strict":
            return self._value
        return MappingProxyType(holder._registry.extensions)

    def __set__(self, holder: Any, value: Any) -> NoReturn:
        name = f"{type(holder).__name__}.{self._name}"
        if self._name == "strict":
            what, cure = (
                f"{name} was assigned to one object",
                f"write `strict = {value!r:.20}` in the body of the class",
            )
        else:
            what = f"{name} was assigned, which adds no hook"
            cure = "declare them on the class, pass them to the constructor, or call add_extension(...)"
        raise HookError(what, name=self._name, cure=cure)


# ---- installed packages ----------------------------------------------------------------------------------------------


def load(name: str) -> Extension:
    """Make the extension that an installed package offers under this name.

    A package offers one in its metadata, here in a ``pyproject.toml``::

        [project.entry-points."train_manager.extensions"]
        grad_noise = "grad_noise:GradNoise"
    """
    from importlib.metadata import entry_points  # takes 20 ms, and is rarely needed

    offered = {point.name: point for point in entry_points(group=GROUP)}
    if name not in offered:
        raise _not_found(f"no installed package offers an extension {name!r}", name, sorted(offered), "offered are")
    found = offered[name].load()
    return require_extension(found() if callable(found) else found)
