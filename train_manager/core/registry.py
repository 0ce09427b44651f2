"""The extensions of one Extensible, by name, and their hooks and providers.

This file also has the Extensibles that each extension serves, the class attributes ``extensions`` and ``strict``, and
the extensions that installed packages offer.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import Any, Final, NamedTuple, NoReturn, Protocol, TypeVar, final
from weakref import WeakValueDictionary

from train_manager.core.extension import Extension, require_extension
from train_manager.core.hooks import Hook, read_hooks
from train_manager.core.lookalikes import refuse_lookalikes, warn_if_idle
from train_manager.core.plan import Plans
from train_manager.core.providers import Provider, read_providers
from train_manager.core.store import Store
from train_manager.telling.errors import ExtensionNotFound, HookError, StageError, did_you_mean, near

E = TypeVar("E", bound=Extension)

GROUP: Final = "train_manager.extensions"  # of entry points in the metadata of packages

Found = tuple[list[Hook], list[Provider]]
"""The hooks and providers of one object."""


class Added(NamedTuple):
    """An extension with the hooks and providers that were read from it."""

    extension: Extension
    hooks: Sequence[Hook]
    providers: Sequence[Provider]


class Joining(Protocol):
    """Lets extensions join an open stage and leave it; a Protocol, since ``joining`` imports ``stage`` and so this."""

    def when_open(self, do: Callable[[], None]) -> None: ...
    def join(self, hooks: Sequence[Hook], providers: Sequence[Provider]) -> None: ...
    def leave(self, hooks: Sequence[Hook], providers: Sequence[Provider]) -> None: ...
    def let_go(self, hooks: Sequence[Hook]) -> None: ...
    def take_again(self, hooks: Sequence[Hook]) -> None: ...


@final
class Registry:
    """The extensions of one Extensible; every change of them makes new plans.

    Args:
        holder: the Extensible; its own methods are hooks and providers too.
        store: the state of the Extensible.
        approve: called after each change; if it raises, the change is taken back.
        joining: lets extensions join a stage that is open.
    """

    def __init__(self, holder: object, store: Store, approve: Callable[[], None], joining: Joining) -> None:
        self.extensions: dict[str, Extension] = {}  # by name, in the order of registration, paused ones too
        self.plans: Plans = Plans(store)
        store.plan_of, store.extensions = self.plans.__getitem__, self.extensions
        self._opener = type(holder)  # the class only: the registry must not keep the object alive
        self._store = store
        self._approve = approve
        self._joining = joining
        self._own: Found = read_hooks(holder, owner=""), read_providers(holder, owner="")
        refuse_lookalikes(holder, self._opener, store.options.words)
        self._added: dict[str, Added]  # by name; `_plan` sets this and the next one
        self._paused: frozenset[str]  # the names of the extensions that pause
        self._rank = 0  # of this process among those that train together
        self._plan({}, frozenset())

    @property
    def hooks(self) -> list[Hook]:
        """The hooks that are in use, the Extensible's own first, then as registered; paused extensions have none."""
        return [*self._own[0], *self._all_of(_without(self._added, self._paused))[0]]

    @property
    def providers(self) -> list[Provider]:
        """The providers that are in use, in the same order."""
        return [*self._own[1], *self._all_of(_without(self._added, self._paused))[1]]

    def add(self, extensions: Mapping[str, Extension]) -> None:
        """Add all extensions or, on an error, none."""
        # All at once, because the order of the hooks of two extensions may come from a third one.
        found: dict[str, Added] = {}
        together = {**self.extensions, **extensions}
        for name, extension in extensions.items():
            _refuse_twice(extension, name, together)
            replacing = self._store.options.replacing
            hooks = read_hooks(extension, name, extension.priority, extension.ranks)
            hooks = [hook for hook in hooks if hook.replaced_by not in replacing]  # `@replaced_by`
            found[name] = Added(extension, hooks, read_providers(extension, name))
            refuse_lookalikes(extension, self._opener, self._store.options.words)
            warn_if_idle(*found[name])
        self._change({**self._added, **found}, self._paused - found.keys())

    def remove(self, name: str) -> Extension:
        """Remove an extension, and return it."""
        extension = self.find_extension(name)
        self._change({other: added for other, added in self._added.items() if other != name}, self._paused - {name})
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
        self._joining.when_open(partial(self._joining.let_go, self._holding(names)))

    def resume(self, names: Iterable[str]) -> None:
        """Bring paused extensions back; one that is not paused stays as it is."""
        names = self._paused.intersection(names)
        self._change(self._added, self._paused.difference(names))
        self._joining.when_open(partial(self._joining.take_again, self._holding(names)))

    def _holding(self, names: Collection[str]) -> list[Hook]:
        """Return the hooks of the named extensions, without extensions that declare ``keeps_hold``."""
        found = [one for name, one in self._added.items() if name in names and not one.extension.keeps_hold]
        return [hook for one in found for hook in one.hooks]

    def use_rank(self, rank: int) -> None:
        """Leave out the hooks of extensions with ``ranks = 0``, unless this is process 0 of several."""
        if rank != self._rank:
            self._rank = rank
            self._plan(self._added, self._paused)

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

    def _all_of(self, added: Mapping[str, Added]) -> Found:
        """Return the hooks that run in this process, and the providers of all these extensions."""
        hooks = [hook for one in added.values() for hook in one.hooks if hook.ranks in (None, self._rank)]
        return hooks, [provider for one in added.values() for provider in one.providers]

    # ---- changes -----------------------------------------------------------------------------------------------

    def _change(self, added: dict[str, Added], paused: frozenset[str]) -> None:
        """Change to these extensions; on an error, the extensions from before stay."""
        before = self._added, self._paused
        self._plan(added, paused)  # if it raises, nothing has changed yet
        try:
            self._approve()
        except BaseException:
            self._plan(*before)
            raise
        # From here on, only hooks of an open stage can fail; `_switch` takes the change back then.
        left, joined = _other_than(added, before[0]), _other_than(before[0], added)
        self._list(joined)
        self._joining.when_open(partial(self._switch, left, joined))

    def _plan(self, added: dict[str, Added], paused: frozenset[str]) -> None:
        """Use the hooks and providers of these extensions for all new plans; on an error, nothing is changed."""
        hooks, providers = self._all_of(_without(added, paused))
        self.plans.use([*self._own[0], *hooks], [*self._own[1], *providers])
        self._added, self._paused = added, paused

    def _list(self, joined: Mapping[str, Added]) -> None:
        """List the extensions that are used now in ``extensions``; some of them have joined."""
        self.extensions.clear()  # the same dict: the store and views refer to it
        self.extensions.update({name: added.extension for name, added in self._added.items()})
        _note_shared([added.extension for added in joined.values()], self._store)

    def _switch(self, left: Mapping[str, Added], joined: Mapping[str, Added]) -> None:
        """Let extensions leave an open stage, and others join it; if their hooks fail, take the joining back."""
        try:
            # An error of a post hook comes out, but the extension stays removed.
            self._joining.leave(*self._all_of(left))
        finally:  # a post hook that fails does not keep the others from joining
            try:
                self._joining.join(*self._all_of(joined))
            except BaseException:
                self._take_back(left, joined)
                raise

    def _take_back(self, left: Mapping[str, Added], joined: Mapping[str, Added]) -> None:
        """Remove extensions that have failed to join, and put back the extensions that they had replaced."""
        replaced = {name: added for name, added in left.items() if name in joined}
        kept = {name: replaced.get(name, added) for name, added in self._added.items()}
        self._plan({name: added for name, added in kept.items() if joined.get(name) is not added}, self._paused)
        self._list(replaced)
        self._joining.join(*self._all_of(replaced))


def _without(added: Mapping[str, Added], names: Collection[str]) -> dict[str, Added]:
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


# ---- the Extensibles that an extension serves ----------------------------------------------------------------------

_stores: Final = WeakValueDictionary[int, Store]()
"""The state of each Extensible that has had extensions, by id."""


def is_serving(extension: Extension) -> bool:
    """Return whether an Extensible has this extension."""
    return bool(_served_by(extension))


def refuse_if_busy(extensions: Iterable[Extension], store: Store) -> None:
    """Refuse that one object serves two Extensibles at the same time."""
    for extension in extensions:
        others = [other for other in _served_by(extension) if other is not store]
        busy = next((other for other in others if other.innermost is not None), None)
        if busy is not None and not extension.shared:
            kind = type(extension).__name__
            raise StageError(
                f"this {kind} serves another extensible, which has stage {' > '.join(busy.path)} open",
                name=kind,
                cure=f"give each one a {kind} of its own, or set `shared = True` in its class if it keeps no state",
            )


def _note_shared(extensions: Iterable[Extension], store: Store) -> None:
    """Note at the states of all Extensibles that have an extension whether they share it."""
    _stores[id(store)] = store
    for extension in extensions:
        serves = _served_by(extension)
        for one in serves if len(serves) > 1 else ():  # `refuse_if_busy`, at each outermost stage of these, costs time
            one.shares = True


def _served_by(extension: Extension) -> list[Store]:
    """Return the states of the Extensibles that have an extension."""
    stores = [reference() for reference in _stores.valuerefs()]  # a list: another thread may make an Extensible
    return [one for one in stores if one is not None and any(extension is held for held in [*one.extensions.values()])]


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
