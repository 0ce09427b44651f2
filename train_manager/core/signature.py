"""What a function asks for by the names of its parameters, and the call that hands it over.

A signature is read once, when the function is handed in; a call then only looks names up.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Iterable, Mapping
from functools import partial
from inspect import Parameter, Signature
from operator import attrgetter, itemgetter
from typing import Any, final

from train_manager.core import messages
from train_manager.core.errors import FixtureNotFound, HookError
from train_manager.core.locations import line_of_function
from train_manager.core.store import Store

_value = attrgetter("value")


@final
class NamedCall:
    """A function whose arguments are found by name.

    >>> def describe(extensible, colour="grey"):
    ...     return f"a {colour} {extensible}"
    >>> NamedCall(describe)(Store({"extensible": "extensible"}))
    'a grey extensible'

    Args:
        function: what is called.
        label: what messages call it.
        reads: where the signature is read, if not from ``function``.

    Attributes:
        required: names that must be there.
        optional: names with a default, which is used when they are absent.
        by_position: all its parameters are required and can be given in their order.
        takes_rest: it has ``**kwargs`` and gets everything that is there.

    Raises:
        HookError: a parameter can't be given by name (``*args``, positional-only).
    """

    __slots__ = ("_cells", "by_position", "defined_at", "function", "label", "optional", "required", "takes_rest")

    def __init__(self, function: Callable[..., Any], label: str = "", reads: Callable[..., Any] | None = None) -> None:
        self.function = function
        self.label = label or getattr(function, "__qualname__", repr(function))
        self.defined_at = line_of_function(reads or function)
        parameters = inspect.signature(reads or function).parameters.values()
        for parameter in parameters:
            self._refuse_nameless(parameter)
        named = [p for p in parameters if p.kind is not Parameter.VAR_KEYWORD]
        self.required = tuple(p.name for p in named if p.default is Parameter.empty)
        self.optional = tuple(p.name for p in named if p.default is not Parameter.empty)
        self.takes_rest = len(named) < len(parameters)
        self._cells: Any = itemgetter(*self.required) if len(self.required) > 1 else None
        positional = all(p.kind is Parameter.POSITIONAL_OR_KEYWORD for p in parameters)
        self.by_position = positional and not self.optional and reads is None  # a call by position takes half the time

    def __call__(self, store: Store) -> Any:
        """Call the function with what it asks for.

        ``**kwargs`` gets all that is alive but the always-there ones, and computes nothing.

        Raises:
            FixtureNotFound: a required name is not alive; then none that it asks for has been computed.
        """
        names, cells = self.required, store.cells
        if self.by_position:
            if not names:
                return self.function()
            try:
                values = [cells[names[0]].value] if len(names) == 1 else [*map(_value, self._cells(cells))]
            except (KeyError, AttributeError):  # not alive, or to be computed
                pass
            else:
                return self.function(*values)
        return self.function(**self._by_name(store))

    def _by_name(self, store: Store) -> dict[str, Any]:
        found = self._found(store)
        found.update((name, store.value(name)) for name in self.optional if store.has(name))
        if self.takes_rest:
            found.update(store.computed)
        return found

    def _found(self, store: Store) -> dict[str, Any]:
        for name in self.missing(store):
            raise self.not_found(store, name)
        return {name: store.value(name) for name in self.required}

    def not_found(self, store: Store, name: str) -> FixtureNotFound:
        """The error for a required name that is not alive."""
        return messages.not_found(store, name, f"{self.label} wants", self.defined_at)

    def missing(self, store: Store) -> list[str]:
        """The required names that are not alive."""
        return [name for name in self.required if not store.has(name)]

    @property
    def asks_for(self) -> tuple[str, ...]:
        """All that it names, with and without a default."""
        return (*self.required, *self.optional)

    def _refuse_nameless(self, parameter: Parameter) -> None:
        if parameter.kind is Parameter.VAR_POSITIONAL:
            wrong, cure = f"*{parameter.name}", f"name what it wants, or take all with **{parameter.name}"
        elif parameter.kind is Parameter.POSITIONAL_ONLY:
            wrong, cure = f"{parameter.name}, /", "take the `/` out of its signature"
        else:
            return
        raise HookError(
            f"{self.label} has the parameter `{wrong}`, but fixtures are given by name",
            name=parameter.name,
            asked_by=self.label,
            asked_at=self.defined_at,
            cure=cure,
        )


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
