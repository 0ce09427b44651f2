"""Hooks and providers whose wishes are known only when an extension is made: which fixtures, its user says."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
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

    def hook(**values: Any) -> Any:
        return function(values)

    parameters: dict[str, Parameter] = {}
    for wish in wishes:
        parameter = Parameter(wish, Parameter.KEYWORD_ONLY) if isinstance(wish, str) else wish
        if parameter.name not in parameters or parameter.default is Parameter.empty:
            parameters[parameter.name] = parameter.replace(kind=Parameter.KEYWORD_ONLY, annotation=Parameter.empty)
    hook.__signature__ = Signature(list(parameters.values()))  # type: ignore[attr-defined]
    return hook
