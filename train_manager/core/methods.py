"""The methods of an object, by name, in the order in which they are written; and the stages that methods open."""

from __future__ import annotations

import ast
import gc
import inspect
import textwrap
from collections.abc import Iterator
from functools import cache, partial, partialmethod
from types import CodeType
from typing import Any, NoReturn

from train_manager.core.errors import HookError
from train_manager.core.source_locations import line_of_function


def method_names(holder: object) -> Iterator[str]:
    """Return the names of the methods: base classes first, each class as it is written; then the object's own."""
    names = dict.fromkeys(name for cls in reversed(type(holder).__mro__) for name in vars(cls))
    names.update(dict.fromkeys(_own_functions(holder)))
    return (name for name in names if _is_method(unbound(holder, name)))


def unbound(holder: object, name: str) -> Any:
    """Return the function behind a method, without calling a property on the way."""
    own = _own_functions(holder)
    found = own[name] if name in own else inspect.getattr_static(type(holder), name)
    return found.__func__ if isinstance(found, staticmethod | classmethod) else found


def is_generator(holder: object, name: str) -> bool:
    """Return whether the method has a ``yield``."""
    return inspect.isgeneratorfunction(inspect.unwrap(unbound(holder, name)))


def refuse_uncallable(holder: object, name: str) -> None:
    """Refuse a method that cannot be called with fixtures: async, or without ``self``."""
    function = unbound(holder, name)
    plain = inspect.unwrap(function)
    if inspect.iscoroutinefunction(plain) or inspect.isasyncgenfunction(plain):
        refuse(holder, name, "is async, which nothing would await", "make it a plain `def`")
    if inspect.isfunction(inspect.getattr_static(type(holder), name, None)):
        first = next(iter(inspect.signature(function).parameters), None)
        if first != "self":
            found = f"takes {first!r}" if first else "takes nothing"
            refuse(holder, name, f"must take `self` first, but {found}", f"write `def {name}(self, ...)`")


def refuse(holder: object, name: str, wrong: str, cure: str) -> NoReturn:
    """Raise a HookError about a method."""
    label = f"{type(holder).__name__}.{name}"
    asked_at = line_of_function(unbound(holder, name))
    raise HookError(f"{label} {wrong}", name=name, asked_by=label, asked_at=asked_at, cure=cure)


def stages_opened_by(cls: type) -> frozenset[str]:
    """Return the stages whose names are written in a class's methods, inherited ones too: ``staged("name")``."""
    functions = [value for base in cls.__mro__ for value in vars(base).values() if inspect.isfunction(value)]
    return frozenset(stage for function in functions for stage in _stages_in(inspect.unwrap(function).__code__))


@cache
def _stages_in(code: CodeType) -> list[str]:  # not the function: the cache would keep what it closes over
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(code)))
    except (OSError, TypeError, SyntaxError):  # no source: made by exec, or written in C
        return []
    stages = []
    for node in ast.walk(tree):
        match node:
            case ast.Call(ast.Attribute(attr="staged") | ast.Name("staged"), [ast.Constant(str(stage)), *_]):
                stages.append(stage)
    return stages


def _own_functions(holder: object) -> dict[str, Any]:
    """Return the functions in the object's own ``__dict__``.

    Looking into ``__dict__`` makes all attributes of an object slower, for good (CPython 3.11 and 3.12): a hook that
    counts would take half as long again. So it is done only if a value of the object could be a function.
    """
    values = gc.get_referents(holder)
    values += [value for inner in values if type(inner) is dict for value in inner.values()]
    if not any(map(_is_method, values)):
        return {}
    return {name: value for name, value in getattr(holder, "__dict__", {}).items() if _is_method(value)}


def _is_method(found: object) -> bool:
    """Return whether it was made by ``def``, or by a decorator or ``partial`` of it: not a property, for example."""
    return isinstance(found, partial | partialmethod) or (inspect.isroutine(found) and callable(found))
