"""The methods of an object as hooks and providers are found: by name, in the order they are written."""

from __future__ import annotations

import gc
import inspect
from collections.abc import Iterator
from functools import partial, partialmethod
from typing import Any, NoReturn

from train_manager.core.errors import HookError
from train_manager.core.locations import line_of_function


def method_names(holder: object) -> Iterator[str]:
    """Names of the methods, base classes first, each class in the order it is written; then the object's own."""
    names = dict.fromkeys(name for cls in reversed(type(holder).__mro__) for name in vars(cls))
    names.update(dict.fromkeys(_own_functions(holder)))
    return (name for name in names if _is_method(unbound(holder, name)))


def unbound(holder: object, name: str) -> Any:
    """The function behind a method, without calling a property on the way."""
    own = _own_functions(holder)
    found = own[name] if name in own else inspect.getattr_static(type(holder), name)
    return found.__func__ if isinstance(found, staticmethod | classmethod) else found


def _own_functions(holder: object) -> dict[str, Any]:
    """What is a function in the object's own ``__dict__``.

    Looking into ``__dict__`` makes all attributes of an object slower, for good (CPython 3.11 and 3.12): a hook that
    counts would take half as long again. So it is done only where a value of the object could be a function.
    """
    values = gc.get_referents(holder)
    values += [value for inner in values if type(inner) is dict for value in inner.values()]
    if not any(_is_method(value) for value in values):
        return {}
    return {name: value for name, value in getattr(holder, "__dict__", {}).items() if _is_method(value)}


def _is_method(found: object) -> bool:
    """Whether it was made by ``def``, or by a decorator or ``partial`` of it; no property, nor another object."""
    return isinstance(found, partial | partialmethod) or (inspect.isroutine(found) and callable(found))


def refuse_uncallable(holder: object, name: str) -> None:
    """Refuse a method that cannot be called with fixtures: async, or without ``self``.

    Raises:
        HookError: saying what to write instead.
    """
    function = unbound(holder, name)
    plain = inspect.unwrap(function)
    if inspect.iscoroutinefunction(plain) or inspect.isasyncgenfunction(plain):
        refuse(holder, name, "is async, and nobody would await it", "make it a plain `def`")
    if inspect.isfunction(inspect.getattr_static(type(holder), name, None)):
        first = next(iter(inspect.signature(function).parameters), None)
        if first != "self":
            wrong = f"takes {first!r} where `self` belongs" if first else "takes no `self`"
            refuse(holder, name, wrong, f"write `def {name}(self, ...)`")


def is_generator(holder: object, name: str) -> bool:
    """Whether the method has a ``yield``."""
    return inspect.isgeneratorfunction(inspect.unwrap(unbound(holder, name)))


def refuse(holder: object, name: str, wrong: str, cure: str) -> NoReturn:
    """Raise a HookError about a method."""
    label = f"{type(holder).__name__}.{name}"
    raise HookError(
        f"{label} {wrong}",
        name=name,
        asked_by=label,
        asked_at=line_of_function(unbound(holder, name)),
        cure=cure,
    )
