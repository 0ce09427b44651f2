"""The methods of an object, by name, in the order in which they are written; and methods that it holds of itself."""

from __future__ import annotations

import gc
import inspect
from collections.abc import Callable, Iterator
from functools import partial, partialmethod
from types import FunctionType, MethodType
from typing import Any, NoReturn, final
from weakref import ref

from train_manager.telling.errors import HookError
from train_manager.telling.source_locations import line_of_function


def attributes_of(holder: object) -> dict[str, Any]:
    """Return the attributes of an object's classes, base classes first, each class as it is written.

    The object's own callables follow. No property is called on the way; names with two underscores are left out.
    """
    found: dict[str, Any] = {}
    for cls in reversed(type(holder).__mro__):
        found.update(vars(cls))
    found.update(_own_callables(holder))
    return {name: _without_wrapper(value) for name, value in found.items() if not name.startswith("__")}


def method_names(holder: object) -> Iterator[str]:
    """Return the names of an object's methods, in the order of ``attributes_of``."""
    return (name for name, found in attributes_of(holder).items() if is_method(found))


def unbound(holder: object, name: str) -> Any:
    """Return the function behind a method, without calling a property on the way."""
    own = _own_callables(holder)
    if name in own:
        return own[name]
    return _without_wrapper(next((vars(cls)[name] for cls in type(holder).__mro__ if name in vars(cls)), None))


def is_method(found: object) -> bool:
    """Return whether an attribute was made by ``def``, or by a decorator or ``partial`` of it; a property was not."""
    if isinstance(found, FunctionType | partial | partialmethod):
        return True
    # Functions in C and their like, which need a slower test.
    return inspect.isroutine(found) and callable(found)


def is_computed(found: object) -> bool:
    """Return whether an attribute is a property, or another object that makes the value when it is read."""
    return not is_method(found) and hasattr(type(found), "__get__")


def underlying_function(holder: object, name: str) -> Callable[..., Any]:
    """Return the function that a call of an attribute runs in the end, below ``partial`` and decorators."""
    found = unbound(holder, name)
    while isinstance(found, partial | partialmethod):
        found = found.func
    if not is_method(found):  # an object with a `__call__`
        found = type(found).__call__
    function: Callable[..., Any] = inspect.unwrap(found)
    return function


def is_generator(holder: object, name: str) -> bool:
    """Return whether a method has a ``yield``."""
    return inspect.isgeneratorfunction(underlying_function(holder, name))


def refuse_uncallable(holder: object, name: str) -> None:
    """Refuse a method that cannot be called with fixtures: async, or without ``self``."""
    plain = underlying_function(holder, name)
    if inspect.iscoroutinefunction(plain) or inspect.isasyncgenfunction(plain):
        refuse(holder, name, "is async, which nothing would await", "make it a plain `def`")
    # Only a plain `def` in a class gets the object first: not a staticmethod, nor a function on the object itself.
    if isinstance(next((vars(cls)[name] for cls in type(holder).__mro__ if name in vars(cls)), None), FunctionType):
        first = next(iter(inspect.signature(unbound(holder, name)).parameters), None)
        if first != "self":
            found = f"takes {first!r}" if first else "takes nothing"
            refuse(holder, name, f"must take `self` first, but {found}", f"write `def {name}(self, ...)`")


def refuse(holder: object, name: str, wrong: str, cure: str) -> NoReturn:
    """Raise a HookError about a method."""
    label = f"{type(holder).__name__}.{name}"
    asked_at = line_of_function(unbound(holder, name))
    raise HookError(f"{label} {wrong}", name=name, asked_by=label, asked_at=asked_at, cure=cure)


def _without_wrapper(found: Any) -> Any:
    """Return the function of a staticmethod or classmethod; any other attribute as it is."""
    return found.__func__ if isinstance(found, staticmethod | classmethod) else found


def _own_callables(holder: object) -> dict[str, Any]:
    """Return the functions and callable objects in the object's own ``__dict__``."""
    # The first look at `__dict__` makes all attributes of an object slower, for good (CPython 3.11 and 3.12): a hook
    # that counts would take half as long again. The garbage collector gives the values without a look at it.
    if not any(type(value) is dict or _can_be_called(value) for value in gc.get_referents(holder)):
        return {}
    return {name: value for name, value in getattr(holder, "__dict__", {}).items() if _can_be_called(value)}


def _can_be_called(value: object) -> bool:
    """Return whether a value could be a hook; a class, as in ``self.kind = SGD``, is an argument."""
    return callable(value) and not isinstance(value, type)


@final
class Weakly:
    """A bound method without a strong reference to its object; the object must be alive as it is called.

    A bound method would be a cycle, which keeps a training with its model in memory until a garbage collection. Python
    collects after many new objects, and tensors are few and large: in a sweep, the models of many trials would pile up.

    >>> class Meter:
    ...     def value(self):
    ...         return 3
    >>> meter = Meter()
    >>> value = Weakly(meter.value)
    >>> value(), value.__self__ is meter
    (3, True)
    """

    __slots__ = ("__func__", "_owner")  # `__func__` and `__self__`, as a bound method has them

    def __init__(self, method: MethodType) -> None:
        self.__func__ = method.__func__
        self._owner = ref(method.__self__)

    @property
    def __self__(self) -> Any:
        return self._owner()

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.__func__(self._owner(), *args, **kwargs)


def weakly(function: Callable[..., Any], owner: object) -> Callable[..., Any]:
    """Return a method of an object without a strong reference to it; any other function as it is."""
    # A method of another object is held strongly: perhaps nothing else keeps that object alive.
    is_own = isinstance(function, MethodType) and function.__self__ is owner
    return Weakly(function) if is_own else function  # type: ignore[arg-type]
