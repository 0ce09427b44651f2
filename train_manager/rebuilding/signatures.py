"""The parameters of classes and functions, and calls of them by name and by position."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping
from inspect import BoundArguments, Parameter, Signature
from typing import Any, Final

REST: Final = (Parameter.VAR_POSITIONAL, Parameter.VAR_KEYWORD)


def signature_of(kind: Any) -> Signature | None:
    """Return the signature of a class or a function, without `self`; None if it cannot be read."""
    method: Any = kind
    if isinstance(kind, type):
        # inspect.signature(kind) would read the __call__ of a metaclass, if there is one.
        method = kind.__new__ if kind.__init__ is object.__init__ else kind.__init__  # type: ignore[misc]
        if method is object.__new__:
            return Signature()
    try:
        signature = inspect.signature(method)
    except (TypeError, ValueError):  # a constructor in C has no signature
        return None
    without_self = list(signature.parameters.values())[1:]
    return signature.replace(parameters=without_self) if isinstance(kind, type) else signature


def arguments_by_name(bound: BoundArguments) -> dict[str, Any]:
    """Return the arguments of a call by name; those of ``**kwargs`` are among them."""
    values: dict[str, Any] = {}
    for name, value in bound.arguments.items():
        kind = bound.signature.parameters[name].kind
        if kind is Parameter.VAR_KEYWORD:
            values.update({other: item for other, item in value.items() if other not in values})
        # Empty *args are left out, so that the other arguments can be given by their names.
        elif kind is not Parameter.VAR_POSITIONAL or value:
            values[name] = value
    return values


def call_of(kind: Any, arguments: Mapping[str, Any], *, is_partial: bool = False) -> tuple[list[Any], dict[str, Any]]:
    """Return arguments as a call takes them: by position where the signature has no names, or has ``*args``.

    Args:
        kind: the class or the function.
        arguments: what ``arguments_by_name`` returned.
        is_partial: give the first ones by position, so that the rest of a partial can be given by position too.
    """
    named, parameters = dict(arguments), list(_parameters(kind))
    # The arguments of *args are one list under its name. If there are any, all before them are given by position.
    rest = next((p.name for p in parameters if p.kind is Parameter.VAR_POSITIONAL and p.name in named), None)
    of_both = [Parameter.POSITIONAL_OR_KEYWORD] if rest is not None or is_partial else []
    by_position = (Parameter.POSITIONAL_ONLY, *of_both)
    args = []
    for parameter in parameters:
        if parameter.kind not in by_position or parameter.name not in named:
            break
        args.append(named.pop(parameter.name))
    return [*args, *(named.pop(rest, ()) if rest else ())], named


def _parameters(kind: Any) -> Iterator[Parameter]:
    signature = signature_of(kind)
    yield from () if signature is None else signature.parameters.values()
