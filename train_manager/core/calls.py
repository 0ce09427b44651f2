"""The fixtures that a function names as its parameters, and the call of the function with these fixtures.

A signature is read once, as a ``NamedCall`` is made; each call then only looks names up.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from inspect import Parameter, Signature
from typing import Any, final

from train_manager.core.messages import Asked
from train_manager.core.store import Store
from train_manager.telling.errors import FixtureNotFound, HookError
from train_manager.telling.source_locations import line_of_function


class Sometimes:
    """Annotates an optional name of ``with_parameters``: the check refuses the name if it is never alive."""


@final
class NamedCall:
    """A function whose arguments are found by name.

    >>> def describe(extensible, colour="grey"):
    ...     return f"a {colour} {extensible}"
    >>> NamedCall(describe)(Store({"extensible": "extensible"}))
    'a grey extensible'

    Args:
        function: the function to call.
        label: its name in messages.
        reads: the function whose signature is read, if it is another one.
    """

    __slots__ = (
        *("by_position", "defaults", "defined_at", "expected", "function", "label", "optional", "required"),
        "takes_rest",
    )

    def __init__(self, function: Callable[..., Any], label: str = "", reads: Callable[..., Any] | None = None) -> None:
        self.function: Callable[..., Any] = function
        self.label: str = label or getattr(function, "__qualname__", repr(function))
        self.defined_at: str = line_of_function(reads or function)
        parameters = self._parameters_of(reads or function)  # may raise an error with the label and the line above
        for parameter in parameters:
            self._refuse_nameless(parameter)
        named = [p for p in parameters if p.kind is not Parameter.VAR_KEYWORD]
        # Names that must be alive at the call.
        self.required: tuple[str, ...] = tuple(p.name for p in named if p.default is Parameter.empty)
        # Names with a default, which is used if they are not alive.
        self.optional: tuple[str, ...] = tuple(p.name for p in named if p.default is not Parameter.empty)
        # Names that the check refuses if they are never alive: the required ones, and those of `sometimes`.
        self.expected: tuple[str, ...] = tuple(
            p.name for p in named if p.default is Parameter.empty or p.annotation is Sometimes
        )
        # Whether the function has `**kwargs`, and so gets every live fixture.
        self.takes_rest: bool = len(named) < len(parameters)
        # The defaults by name; None if the call cannot give all required parameters by position and the others by
        # name, as with `*, name` without a default. The function that calls the hooks of a stage needs that form.
        is_usual = all(map(_is_usual, parameters)) and reads is None
        self.defaults: dict[str, Any] | None = (
            {p.name: p.default for p in parameters if p.default is not Parameter.empty} if is_usual else None
        )
        # Whether all parameters are required, and can be given in their order: such a call takes half the time.
        self.by_position: bool = self.defaults == {}

    def __call__(self, store: Store) -> Any:
        """Call the function with the fixtures that its parameters name.

        ``**kwargs`` gets every live fixture but the always-there ones, and computes nothing.
        """
        if self.by_position:
            names, cells = self.required, store.cells
            try:
                # Most functions name one fixture: no comprehension, which costs a call (CPython 3.11).
                if len(names) > 1:
                    values = [cells[name].value for name in names]
                else:
                    values = [cells[names[0]].value] if names else []
            except (KeyError, AttributeError):  # no cell, or one without a value: dead, lazy, or still waiting
                pass
            else:  # not inside `try`: an AttributeError of the function is its own
                return self.function(*values)
        return self.function(**self._by_name(store))

    def _by_name(self, store: Store) -> dict[str, Any]:
        """Return the arguments by name; lazy fixtures are computed."""
        for name in self.missing(store):  # the first missing name is refused before any lazy fixture is computed
            raise self.not_found(store, name)
        found = {name: store.value(name) for name in self.required}
        found.update((name, store.value(name)) for name in self.optional if store.has(name))
        if self.takes_rest:
            found.update(store.computed)
        return found

    def of(self, function: Callable[..., Any]) -> NamedCall:
        """Return the call of another function with the same signature, which is not read again."""
        # A shallow copy, slot by slot: `__init__` would read the signature again.
        made = NamedCall.__new__(NamedCall)
        for name in NamedCall.__slots__:
            setattr(made, name, getattr(self, name))
        made.function = function
        return made

    def not_found(self, store: Store, name: str) -> FixtureNotFound:
        """Make the error for a required name that is not alive."""
        asked: Asked = {"name": name, "asked_by": self.label, "asked_at": self.defined_at, "stages": store.path}
        return store.not_found_error(asked, "wants")

    def error(self, wrong: str, name: str, cure: str) -> HookError:
        """Make the error for a function that cannot be used as it is written."""
        return HookError(f"{self.label} {wrong}", name=name, asked_by=self.label, asked_at=self.defined_at, cure=cure)

    def missing(self, store: Store) -> list[str]:
        """Return the required names that are not alive."""
        return [name for name in self.required if not store.has(name)]

    @property
    def parameters(self) -> tuple[str, ...]:
        """All names, with and without a default."""
        return (*self.required, *self.optional)

    def _parameters_of(self, function: Callable[..., Any]) -> list[Parameter]:
        """Return the parameters, without those to which a ``partial`` has given a value by name."""
        try:
            parameters = inspect.signature(function).parameters.values()
        except (ValueError, TypeError):
            cure = "write a function around it that names the fixtures as its parameters"
            raise self.error("has no signature, so nothing says which fixtures it wants", self.label, cure) from None
        bound = function.keywords if isinstance(function, partial) else ()
        return [parameter for parameter in parameters if parameter.name not in bound]

    def _refuse_nameless(self, parameter: Parameter) -> None:
        """Refuse ``*args`` and ``name, /``, which no name can be given to."""
        if parameter.kind is Parameter.VAR_POSITIONAL:
            wrong, cure = f"*{parameter.name}", f"name what it wants, or take all with **{parameter.name}"
        elif parameter.kind is Parameter.POSITIONAL_ONLY:
            wrong, cure = f"{parameter.name}, /", "take the `/` out of its signature"
        else:
            return
        raise self.error(f"has the parameter `{wrong}`, but fixtures are given by name", parameter.name, cure)


def _is_usual(parameter: Parameter) -> bool:
    """Return whether a parameter can be given by position if it is required, or by name if it has a default."""
    is_named = parameter.kind is Parameter.KEYWORD_ONLY and parameter.default is not Parameter.empty
    return is_named or parameter.kind is Parameter.POSITIONAL_OR_KEYWORD


def sometimes(name: str) -> Parameter:
    """Return a parameter of ``with_parameters`` whose fixture is alive at some calls of the hook only."""
    return Parameter(name, Parameter.KEYWORD_ONLY, default=None, annotation=Sometimes)


def with_parameters(
    parameters: Iterable[str | Parameter], function: Callable[[Mapping[str, Any]], Any]
) -> Callable[..., Any]:
    """Make a hook whose parameters are known only when an extension is made; it is checked and ordered as any other.

    >>> hook = with_parameters(["loss", "batch", sometimes("norm")], lambda values: print(sorted(values)))
    >>> hook(loss=.5, batch=None)
    ['batch', 'loss']

    Args:
        parameters: names, or parameters, which may have a default. A name that comes twice is required if one of the
            two is.
        function: called with a mapping of names to values. A name with a default is left out while its fixture is not
            alive, or is None: two functions behind one hook may have different defaults.
    """
    by_name: dict[str, Parameter] = {}
    for given in parameters:
        parameter = Parameter(given, Parameter.POSITIONAL_OR_KEYWORD) if isinstance(given, str) else given
        if parameter.name not in by_name or parameter.default is Parameter.empty:  # a required one wins
            by_name[parameter.name] = parameter
    required = [name for name, parameter in by_name.items() if parameter.default is Parameter.empty]
    optional = [parameter for name, parameter in by_name.items() if name not in required]
    # A `partial` and not a closure: `copy` copies its arguments, so that the hook of a copied extension calls the copy.
    hook = partial(_call_with_mapping, function, tuple(required))
    hook.__signature__ = Signature(  # type: ignore[attr-defined]
        [Parameter(name, Parameter.POSITIONAL_OR_KEYWORD) for name in required]
        + [parameter.replace(kind=Parameter.KEYWORD_ONLY, default=None) for parameter in optional]
    )
    return hook


def _call_with_mapping(
    function: Callable[[Mapping[str, Any]], Any], required: tuple[str, ...], /, *given: Any, **named: Any
) -> Any:
    """Call a function with one mapping of values, without optional names that are not alive."""
    # Required values come by position where the caller can give them so, which is quicker; all others by name.
    values = dict(zip(required, given, strict=False))
    values.update((name, value) for name, value in named.items() if value is not None or name in required)
    return function(values)
