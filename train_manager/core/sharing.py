"""Which Extensibles an extension serves, so that one with a state of its own is not mixed up between two."""

from __future__ import annotations

import weakref
from collections.abc import Iterable

from train_manager.core.errors import StageError
from train_manager.core.extension import Extension
from train_manager.core.store import Store

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
