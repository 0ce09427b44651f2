"""Hooks and providers whose wishes are known only when an extension is made: which fixtures, its user says."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from functools import partial
from inspect import Parameter, Signature
from typing import Any


def asking_for(wishes: Iterable[str | Parameter], function: Callable[[Mapping[str, Any]], Any]) -> Callable[..., Any]:
    """A hook that asks for these fixtures, and is checked and ordered as any other; the function gets them by name.

    >>> hook = asking_for(["loss", "batch"], lambda values: print(sorted(values)))
    >>> hook(loss=.5, batch=None)
    ['batch', 'loss']

    Args:
        wishes: names, or parameters, which may have a default. Of two of one name one that has none counts.
        function: called with a mapping of what was asked for.
    """

    parameters: dict[str, Parameter] = {}
    for wish in wishes:
        parameter = Parameter(wish, Parameter.POSITIONAL_OR_KEYWORD) if isinstance(wish, str) else wish
        if parameter.name not in parameters or parameter.default is Parameter.empty:
            parameters[parameter.name] = parameter
    ordered = signed(parameters.values())
    names = tuple(parameter.name for parameter in ordered)

    # Not a closure: of an extension that is copied, the hook is to call the copy.
    hook = partial(_ask, function, names)
    hook.__signature__ = Signature(ordered)  # type: ignore[attr-defined]
    return hook


def _ask(function: Callable[[Mapping[str, Any]], Any], names: tuple[str, ...], /, *given: Any, **named: Any) -> Any:
    """Hand over what was given, by position where all are there, which is quicker."""
    return function(dict(zip(names, given, strict=False), **named))


def signed(parameters: Collection[Parameter]) -> list[Parameter]:
    """The parameters of a signature: those with a default are given by name, and come last."""
    required = [p for p in parameters if p.default is Parameter.empty]
    optional = [p for p in parameters if p.default is not Parameter.empty]
    by_position = [p.replace(kind=Parameter.POSITIONAL_OR_KEYWORD, annotation=Parameter.empty) for p in required]
    return by_position + [p.replace(kind=Parameter.KEYWORD_ONLY, annotation=Parameter.empty) for p in optional]
