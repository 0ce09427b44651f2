"""Methods that an object may hold of itself: they do not keep it alive, so that ``del`` frees it at once."""

from __future__ import annotations

from collections.abc import Callable
from types import MethodType
from typing import Any, final
from weakref import ref


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
