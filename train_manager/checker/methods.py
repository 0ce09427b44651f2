"""The methods of one class, as the checker reads them: which function a call finds, and the outline of it.

The source of a method of a loop that has a table (``table.py``) is not read: its outline comes from the table.
"""

from __future__ import annotations

import inspect
import sysconfig
from collections.abc import Iterator
from functools import cached_property
from types import FunctionType
from typing import Final, final

from train_manager.checker.method_source import function_of, names_in, names_stages
from train_manager.checker.outline import (
    Calls,
    Defines,
    HandsOn,
    Item,
    Later,
    Opens,
    Outline,
    Unknown,
    WithoutSource,
    Yields,
    body_of,
)
from train_manager.checker.reader import outline_of
from train_manager.checker.table import Table

NEVER_LOOKED_INTO: Final = "train_manager.core."
"""The core's own methods open no stages of their own."""

STANDARD_LIBRARY: Final = sysconfig.get_path("stdlib")  # the folder of its files


@final
class Methods:
    """The methods of a class.

    Args:
        owner: the class of the object: an Extensible, or an extension.
    """

    def __init__(self, owner: type) -> None:
        self.owner = owner
        self.opens_stages = hasattr(owner, "staged")  # else the object itself in other hands is harmless
        # Of the first class that has each; read without running a property or a descriptor.
        self._attributes = {name: value for cls in reversed(owner.__mro__) for name, value in vars(cls).items()}
        self._named: dict[str, FunctionType | None] = {}
        self._parameters: dict[FunctionType, list[inspect.Parameter]] = {}
        self._called: dict[FunctionType, frozenset[FunctionType]] = {}
        self._generators: dict[FunctionType, bool] = {}
        # The class that brings a table, and the bases that it was written for.
        self._loop: type | None = next((cls for cls in owner.__mro__ if "_stages" in vars(cls)), None)
        self._table: Table | None = None if self._loop is None else vars(self._loop)["_stages"]
        self._outlines: dict[FunctionType, Outline] = {}
        self._of_extensions: dict[type, Methods] = {}

    def of_extension(self, kind: type) -> Methods:
        """Return the methods of the class of an extension, whose hooks are looked at beside this class."""
        if kind not in self._of_extensions:
            self._of_extensions[kind] = Methods(kind)
        return self._of_extensions[kind]

    # ---- which function ------------------------------------------------------------------------------------------

    def named(self, name: str) -> FunctionType | None:
        """Return the method of a name, or the getter of a property; None if it is one of the core's own."""
        if name not in self._named:
            self._named[name] = _unless_of_the_core(function_of(self._attributes.get(name)))
        return self._named[name]

    def is_property(self, name: str) -> bool:
        return isinstance(self._attributes.get(name), property | cached_property)

    def called(self, call: Calls, caller: FunctionType) -> FunctionType | None:
        """Return the method that a call in another method finds."""
        return self._inherited(call.method, caller) if call.is_super else self.named(call.method)

    def _inherited(self, name: str, caller: FunctionType) -> FunctionType | None:
        """Return the next method of a name after the class that holds the caller."""
        later = iter(self.owner.__mro__)  # the loop leaves it behind the class that holds this function
        for cls in later:
            if function_of(vars(cls).get(caller.__name__)) is caller:
                break
        return next((_unless_of_the_core(function_of(vars(cls)[name])) for cls in later if name in vars(cls)), None)

    def all(self) -> dict[str, FunctionType]:
        """Return the methods that may open stages by name: not those of the core, of torch, of the standard library.

        Of a loop with a table they are the methods of the table, and those that subclasses add.
        """
        return self._all

    @cached_property
    def _all(self) -> dict[str, FunctionType]:
        found = {name: self.named(name) for name in self._attributes}
        return {name: one for name, one in found.items() if one is not None and self._may_open(one)}

    def _may_open(self, function: FunctionType) -> bool:
        if self.is_of_the_loop(function):
            return function.__name__ in self._table.methods  # type: ignore[union-attr]
        module = function.__module__ or ""  # a class made by exec has none
        file = function.__code__.co_filename
        is_standard = file.startswith("<frozen ") or (file.startswith(STANDARD_LIBRARY) and "site-packages" not in file)
        return not is_standard and not module.startswith("torch.")

    def is_of_the_loop(self, function: FunctionType) -> bool:
        """Return whether the table says what a method does."""
        return function in self._functions_of_the_loop

    def is_added(self, function: FunctionType) -> bool:
        """Return whether a subclass of a loop with a table adds a method, and overrides none."""
        return self._table is not None and function.__name__ not in self._table.methods

    @cached_property
    def _functions_of_the_loop(self) -> set[FunctionType]:
        bases = () if self._loop is None else self._loop.__mro__
        found = {function_of(value) for cls in bases for value in vars(cls).values()}
        # Not a function that a program has put in place of one of the loop's own.
        return {one for one in found if one is not None and (one.__module__ or "").startswith("train_manager.")}

    def parameters(self, function: FunctionType) -> list[inspect.Parameter]:
        """Return the parameters of a method beside the object."""
        if function not in self._parameters:
            self._parameters[function] = list(inspect.signature(function).parameters.values())[1:]
        return self._parameters[function]

    def is_generator(self, function: FunctionType) -> bool:
        """Return whether a call of a method runs none of it yet, but makes an iterator or a context manager."""
        if function not in self._generators:
            self._generators[function] = (
                _has_yield(self.outline(function))
                if self.is_of_the_loop(function)
                else inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function)
            )
        return self._generators[function]

    # ---- what it does --------------------------------------------------------------------------------------------

    def outline(self, function: FunctionType) -> Outline:
        """Return the outline of a method."""
        found = self._outlines.get(function)
        if found is None:
            found = self._outlines[function] = self._outline(function)
        return found

    def _outline(self, function: FunctionType) -> Outline:
        if self._table is not None and self.is_of_the_loop(function):
            return self._table.outlines.get(function.__name__, ())
        outline = outline_of(function)
        # `inspect.unwrap` has skipped the decorators of the method, whose code may open stages too.
        if any(map(names_stages, self._wrappers(function))):
            what = f"{function.__qualname__} has a decorator that opens stages or writes fixtures"
            return (Unknown(what), *outline)
        return outline

    def _wrappers(self, function: FunctionType) -> Iterator[FunctionType]:
        """Yield the functions that decorators have put around a method with ``functools.wraps``."""
        for cls in self.owner.__mro__:
            outer = vars(cls).get(function.__name__)
            if callable(outer) and inspect.unwrap(outer) is function:
                while outer is not function:
                    if isinstance(outer, FunctionType) and not (outer.__module__ or "").startswith("train_manager."):
                        yield outer
                    outer = getattr(outer, "__wrapped__", function)

    def called_in(self, function: FunctionType) -> frozenset[FunctionType]:
        """Return the methods that a method calls directly, or hands to other code."""
        if function not in self._called:
            self._called[function] = frozenset(self._called_in(self.outline(function), function))
        return self._called[function]

    def _called_in(self, outline: Outline, function: FunctionType) -> Iterator[FunctionType]:
        for item in outline:
            found = self.followed(item, function)
            if found is not None:
                yield found
            yield from self._called_in(body_of(item), function)

    def reachable(self, function: FunctionType) -> set[FunctionType]:
        """Return the methods that a method calls, also through others."""
        found: set[FunctionType] = set()
        ahead = [function]
        while ahead:
            called = self.called_in(ahead.pop()) - found
            found |= called
            ahead += called
        return found

    def matters(self, function: FunctionType) -> bool:
        """Return whether a method opens stages, defines fixtures or may do so, also through others."""
        return any(self._does(self.outline(one)) for one in (function, *self.reachable(function)))

    def _does(self, outline: Outline) -> bool:
        for item in outline:
            match item:
                case Opens() | Defines() | Unknown():
                    return True
                case HandsOn(name="") if self.opens_stages:
                    return True
                case WithoutSource() if self._is_suspect(item):
                    return True
                case _ if self._does(body_of(item)):
                    return True
        return False

    # ---- what cannot be followed ---------------------------------------------------------------------------------

    def followed(self, item: Item, caller: FunctionType) -> FunctionType | None:
        """Return the method that an item of another method calls, or lets other code call."""
        if isinstance(item, HandsOn):
            return self.named(item.name)
        return self.called(item, caller) if isinstance(item, Calls) else None

    def unknown_in(self, item: Item, caller: FunctionType) -> Unknown | None:
        """Return the unknown code that an item of a method stands for; None if it can be followed, or does nothing."""
        match item:
            case Unknown():
                return item
            case HandsOn(name="") if self.opens_stages:
                return Unknown(item.what)
            case HandsOn() if not self.is_property(item.name):
                handed = self.named(item.name)
                return Unknown(item.what) if handed is not None and self.matters(handed) else None
            case Later() if self._does(item.body) or any(map(self.matters, self._called_in(item.body, caller))):
                return Unknown(item.what)
            case WithoutSource() if self._is_suspect(item):
                return Unknown(item.what)
            case Calls(hands=Unknown() as hands):
                called = self.called(item, caller)
                return hands if called is None or "fixtures" not in called.__code__.co_varnames else None
        return None

    def _is_suspect(self, item: WithoutSource) -> bool:
        """Return whether a method without source may open stages: it names them, or a method of its object."""
        names = item.names
        return not names.isdisjoint(("staged", "fixtures", "getattr")) or any(map(self.named, names))

    @cached_property
    def unread(self) -> tuple[str, ...]:
        """Descriptions of the attributes that run unread code as other code uses them."""
        return tuple(self._find_unread())

    def _find_unread(self) -> Iterator[str]:
        for name, found in self._attributes.items():
            kind = type(found)
            if kind.__module__.startswith("train_manager."):  # `Held`, for example, which does neither
                continue
            if isinstance(found, property):
                if any(map(self._sets_more, (found.fset, found.fdel))):
                    yield f"{self.owner.__qualname__}.{name} is the setter of a property"
            elif not isinstance(found, cached_property) and _runs_python(kind):
                yield f"{self.owner.__qualname__}.{name} is a {kind.__name__}"

    def _sets_more(self, setter: object) -> bool:
        """Return whether a setter may do more than keep a value."""
        if not isinstance(setter, FunctionType) or (setter.__module__ or "").startswith("train_manager."):
            return False
        return names_stages(setter) or any(map(self.named, names_in(setter.__code__)))


def _has_yield(outline: Outline) -> bool:
    return any(isinstance(item, Yields) or _has_yield(body_of(item)) for item in outline)


def _unless_of_the_core(function: FunctionType | None) -> FunctionType | None:
    return None if function is None or (function.__module__ or "").startswith(NEVER_LOOKED_INTO) else function


def _runs_python(kind: type) -> bool:
    """Return whether an attribute of this class runs code in Python as it is read or set."""
    # Functions have a `__get__` too, but in C: only code in Python may open stages.
    return any(isinstance(getattr(kind, does, None), FunctionType) for does in ("__get__", "__set__"))
