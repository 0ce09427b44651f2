"""The extensions of one Extensible, by name, with the hooks and providers that were found on them."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import Any, Final, NoReturn, final

from train_manager.core.errors import ExtensionNotFound, HookError, StageError, did_you_mean, near
from train_manager.core.extension import Extension, Extensions, checked
from train_manager.core.hooks import Hook, read_hooks, refuse_foreign_names
from train_manager.core.plan import Plans
from train_manager.core.providers import Provider, read_providers
from train_manager.core.store import Store

GROUP: Final = "train_manager.extensions"


def load(name: str) -> Extension:
    """Make the extension that an installed package offers under this name.

    A package offers one in its metadata, here in a ``pyproject.toml``::

        [project.entry-points."train_manager.extensions"]
        grad_noise = "grad_noise:GradNoise"

    Raises:
        ExtensionNotFound: no installed package offers it.
        HookError: what it offers is no extension.
    """
    from importlib.metadata import entry_points  # 20 ms, and few need it

    offered = {point.name: point for point in entry_points(group=GROUP)}
    if name not in offered:
        nearest = near(name, offered)
        there = ", ".join(sorted(offered)) or "none"
        raise ExtensionNotFound(
            f"no installed package offers an extension {name!r}",
            name=name,
            nearest=nearest,
            cure=did_you_mean(nearest) or f"offered are: {there}",
        )
    found = offered[name].load()
    return checked(found() if callable(found) else found)


_served: dict[int, weakref.WeakSet[Store]] = {}  # by id: an extension need not be hashable


def serve(extension: Extension, store: Store) -> None:
    """Note that an extension was added to the Extensible of this store."""
    if id(extension) not in _served:
        _served[id(extension)] = weakref.WeakSet()
        weakref.finalize(extension, _served.pop, id(extension), None)
    serves = _served[id(extension)]
    serves.add(store)
    if len(serves) > 1:  # the check costs time at each outermost stage, and most need none
        for other in serves:
            other.shares = True


def release(extension: Extension, store: Store) -> None:
    """Note that it was removed."""
    _served.get(id(extension), weakref.WeakSet()).discard(store)


def is_serving(extension: Extension) -> bool:
    """Whether some Extensible has it."""
    return bool(_served.get(id(extension)))


def refuse_if_busy(extensions: Iterable[Extension], store: Store) -> None:
    """Refuse that one object serves two Extensibles at the same time.

    Raises:
        StageError: another Extensible that uses one of them has a stage open.
    """
    for extension in extensions:
        others = [other for other in _served.get(id(extension), ()) if other is not store]
        busy = next((other for other in others if other.innermost is not None), None)
        if busy is not None and not extension.shared:
            kind = type(extension).__name__
            raise StageError(
                f"this {kind} serves another extensible, which has stage {' > '.join(busy.path)} open",
                name=kind,
                cure=f"give each one a {kind} of its own, or say `shared = True` in its class if it keeps no state",
            )


@final
class Declared:
    """Keeps what a class declares apart from what its objects have, and an assignment from being lost."""

    def __init__(self, extensions: Extensions) -> None:
        self._extensions = extensions

    def __get__(self, holder: Any, owner: type) -> Any:
        return self._extensions if holder is None else MappingProxyType(holder._registry.extensions)

    def __set__(self, holder: Any, value: Any) -> NoReturn:
        raise HookError(
            f"{type(holder).__name__}.extensions was assigned, which adds no hook",
            name="extensions",
            cure="declare them on the class, pass them to the constructor, or call add_extension(...)",
        )


@final
class Switch:
    """``strict``: what the class says, until it is set on the object."""

    def __init__(self, value: bool) -> None:
        self._value = value

    def __get__(self, holder: Any, owner: type) -> bool:
        return self._value if holder is None else bool(holder._store.strict)

    def __set__(self, holder: Any, value: bool) -> None:
        holder._store.strict = value
        holder._checked = {}  # what was found without it


Found = tuple[list[Hook], list[Provider]]
"""The hooks and providers of one object."""


@final
class Registry:
    """Extensions come and go here, and every change makes new plans.

    Attributes:
        extensions: by name, in the order of registration.
        plans: what runs at each stage.

    Args:
        holder: the Extensible; its own methods are hooks and providers too.
        store: its state.
        approve: called after each change, which is taken back if it raises.
    """

    def __init__(self, holder: object, store: Store, approve: Callable[[], None]) -> None:
        self.extensions: dict[str, Extension] = {}
        self.plans = Plans(store)
        store.plan_of, store.extensions = self.plans.__getitem__, self.extensions
        self._opener = type(holder)
        self._store = store
        self._approve = approve
        self._own: Found = read_hooks(holder, owner=""), read_providers(holder, owner="")
        self._added: dict[str, Found] = {}
        self._plan(self._added)

    @property
    def hooks(self) -> list[Hook]:
        """All hooks, the Extensible's own first, then as registered."""
        return [hook for hooks, _ in (self._own, *self._added.values()) for hook in hooks]

    @property
    def providers(self) -> list[Provider]:
        """All providers, in the same order."""
        return [provider for _, providers in (self._own, *self._added.values()) for provider in providers]

    def add(self, extensions: Mapping[str, Extension]) -> None:
        """Add all of them or, on an error, none: the order of two may come from a third.

        Raises:
            HookError: a hook could never be called, or one extension would be there twice.
            OrderError: hooks cannot be ordered.
        """
        found: dict[str, Found] = {}
        together = {**self.extensions, **extensions}
        for name, extension in extensions.items():
            _refuse_twice(extension, name, together)
            found[name] = read_hooks(extension, name, extension.priority), read_providers(extension, name)
            refuse_foreign_names(extension, self._opener)
        self._use({**self._added, **found})
        for name, extension in extensions.items():
            if name in self.extensions:
                release(self.extensions[name], self._store)
            self.extensions[name] = extension
            serve(extension, self._store)

    def remove(self, name: str) -> Extension:
        """Take one out.

        Raises:
            ExtensionNotFound: none has this name.
        """
        extension = self.named(name)
        self._use({other: found for other, found in self._added.items() if other != name})
        release(self.extensions.pop(name), self._store)
        return extension

    def named(self, name: str) -> Extension:
        """The extension of this name.

        Raises:
            ExtensionNotFound: there is none.
        """
        if name in self.extensions:
            return self.extensions[name]
        nearest = near(name, self.extensions)
        raise ExtensionNotFound(
            f"{self._opener.__name__} has no extension {name!r}",
            name=name,
            nearest=nearest,
            cure=did_you_mean(nearest) or f"its extensions: {', '.join(self.extensions) or 'none'}",
        )

    def _use(self, added: Mapping[str, Found]) -> None:
        before = self._added
        self._plan(added)
        try:
            self._approve()
        except BaseException:
            self._plan(before)
            raise

    def _plan(self, added: Mapping[str, Found]) -> None:
        found = (self._own, *added.values())
        self.plans.use(
            [hook for hooks, _ in found for hook in hooks],
            [provider for _, providers in found for provider in providers],
        )
        self._added = dict(added)


def _refuse_twice(extension: Extension, name: str, extensions: Mapping[str, Extension]) -> None:
    for taken, there in extensions.items():
        if there is extension and taken != name:
            raise HookError(
                f"this {type(extension).__name__} is an extension here already, as {taken!r}",
                name=name,
                cure=f"its hooks would run twice; add another {type(extension).__name__}()",
            )
