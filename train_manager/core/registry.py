"""The extensions of one Extensible, by name, with the hooks and providers that were found on them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import final

from train_manager.core.errors import ExtensionNotFound, HookError, did_you_mean, near
from train_manager.core.extension import Extension
from train_manager.core.hook import Hook, read_hooks, refuse_foreign_names
from train_manager.core.plan import Plans
from train_manager.core.provider import Provider, read_providers
from train_manager.core.sharing import release, serve
from train_manager.core.store import Store

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
        store.place_of, store.plan_of, store.extensions = self.plans.place_of, self.plans.__getitem__, self.extensions
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
