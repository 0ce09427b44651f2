"""The Extensibles that have one extension object: two of them may not have stages open at the same time."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final
from weakref import WeakValueDictionary

from train_manager.core.extension import Extension
from train_manager.core.store import Store
from train_manager.telling.errors import StageError

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


def note_shared(extensions: Iterable[Extension], store: Store) -> None:
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
