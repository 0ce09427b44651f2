"""Class attributes that mean more on an object: ``extensions`` is a view of what is there now, ``strict`` a switch."""

from __future__ import annotations

from types import MappingProxyType
from typing import Any, NoReturn, final

from train_manager.core.errors import HookError
from train_manager.core.extension import Extensions


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
