"""Values in a ``repr``: in a few words, without a look inside of objects that may be large, slow or read only once."""

from __future__ import annotations

import inspect
import os  # not pathlib, whose import takes as long as a tenth of this library's
from collections.abc import Iterator, Mapping
from functools import partial
from inspect import Parameter
from types import MappingProxyType
from typing import Any, Final

LONGEST: Final = 100
"""The longest ``repr`` of one object, in characters; several stand on a line of a terminal or in a cell of a table."""

_ABSENT: Final = object()  # stands for an argument that no attribute holds; None may be a value
_SHOWN_ITEMS: Final = 4


def cut(text: str, longest: int = LONGEST) -> str:
    """Return a text in one line, cut after ``longest`` characters."""
    text = " ".join(text.split())
    return text if len(text) <= longest else f"{text[: longest - 3]}..."


def short(value: Any) -> str:
    """Return a value in a few words: numbers without noise, functions and classes by name, large things by class.

    >>> short(0.1 + 0.2), short([1, 2.5, "three"]), short(print), short(object())
    ('0.3', "[1, 2.5, 'three']", 'print', 'object')
    """
    if isinstance(value, float):
        return f"{value:.6g}"
    if value is None or isinstance(value, int | str | os.PathLike):
        return cut(str(value) if isinstance(value, os.PathLike) else repr(value), 60)
    if isinstance(value, list | tuple):
        return f"[{_join_items(map(short, value), len(value))}]"
    if isinstance(value, dict | MappingProxyType):
        return f"{{{_join_items((f'{short(key)}: {short(item)}' for key, item in value.items()), len(value))}}}"
    return _display_name(value)


def safe_repr(value: Any) -> str:
    """Return the ``repr`` of a value; if it raises an error, the name of the class."""
    try:
        return cut(repr(value))
    except Exception:  # it would hide the message that the value is a part of
        return f"{type(value).__name__}(...)"


def constructor_text(made: object) -> str:
    """Return ``EMA(decay=0.99)``: the class, and those arguments of its constructor that differ from their defaults.

    The arguments are read from the attributes of the same names, with or without an underscore before; an argument that
    no attribute holds is left out.

    >>> class Largest:
    ...     def __init__(self, count, *, share=0.5, warm_up=False):
    ...         self.count, self._share, self.warm_up = count, share, warm_up
    >>> constructor_text(Largest(3, share=0.1 + 0.2))
    'Largest(3, share=0.3)'
    """
    kind = type(made).__name__
    try:
        return cut(f"{kind}({', '.join(_arguments(made))})")
    except Exception:  # of the `repr` of an attribute, which is the user's
        return f"{kind}(...)"


def _arguments(made: object) -> Iterator[str]:
    """Yield the arguments of a constructor as they would be written."""
    held = getattr(made, "__dict__", {})
    for parameter in list(inspect.signature(type(made).__init__).parameters.values())[1:]:
        value = held.get(parameter.name, held.get(f"_{parameter.name}", _ABSENT))
        if value is _ABSENT or _is(value, parameter.default):
            continue
        if parameter.kind is Parameter.VAR_POSITIONAL and isinstance(value, list | tuple):
            yield from map(short, value)
        elif parameter.kind is Parameter.VAR_KEYWORD and isinstance(value, Mapping):
            yield from (f"{name}={short(option)}" for name, option in value.items())
        elif parameter.kind is Parameter.POSITIONAL_OR_KEYWORD and parameter.default is Parameter.empty:
            yield short(value)
        elif parameter.kind in (Parameter.POSITIONAL_OR_KEYWORD, Parameter.KEYWORD_ONLY):
            yield f"{parameter.name}={short(value)}"


def _is(value: Any, default: Any) -> bool:
    """Return whether a value is the default."""
    # Only numbers and strings are compared by `==`, which for a tensor or an array is slow, and returns no bool.
    if isinstance(value, list | tuple) and isinstance(default, list | tuple):
        return len(value) == len(default) and all(map(_is, value, default))
    return value is default or (isinstance(value, int | float | str) and bool(value == default))


def _join_items(items: Iterator[str], count: int) -> str:
    # `items` is an iterator: items that are not shown are not turned into text.
    shown = [item for _, item in zip(range(_SHOWN_ITEMS), items, strict=False)]
    return ", ".join([*shown, *(["..."] if count > _SHOWN_ITEMS else [])])


def _display_name(value: Any) -> str:
    """Return the name of a function or a class, the ``repr`` of an object of this library, or the name of its class."""
    if isinstance(value, partial):
        return _display_name(value.func)
    name = getattr(value, "__name__", None)
    if isinstance(name, str) and callable(value):
        return name
    kind = type(value)
    is_word = kind.__module__ == "torch" and kind.__name__ in ("dtype", "device")
    is_ours = kind.__module__.startswith("train_manager.") and vars(object)["__repr__"] is not kind.__repr__
    return cut(str(value) if is_word else repr(value) if is_ours else kind.__name__, 60)
