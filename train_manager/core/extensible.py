"""Extensible: a class whose methods mark stages, and whose extensions run around them."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Mapping
from types import FrameType, MappingProxyType
from typing import Any, TypeVar, cast

from train_manager.core.errors import ExtensionNotFound, HookError, did_you_mean, near
from train_manager.core.extension import Extension, Extensions, checked, free_name, named
from train_manager.core.fixtures import Fixtures
from train_manager.core.hook import Hook, read_hooks, refuse_foreign_names
from train_manager.core.plan import Plans
from train_manager.core.signature import NamedCall
from train_manager.core.source import line_of, site_of
from train_manager.core.stage import Stage

R = TypeVar("R")


class Extensible:
    """Base class of what can be extended without touching its code.

    Its methods mark their parts as stages and give out values as fixtures; hooks of the extensions run before and
    after each stage and get the fixtures that they name:

    >>> from train_manager import Extensible, Extension
    >>> class Printer(Extension):
    ...     def pre_work(self, size):
    ...         print("before:", size)
    ...     def post_work(self, size, result):
    ...         print("after:", size, result)
    >>> class Worker(Extensible):
    ...     extensions = [Printer()]
    ...     def work(self):
    ...         with self.staged("work", {"size": 2}):
    ...             self.fixtures["result"] = 4
    >>> Worker().work()
    before: 2
    after: 2 4

    Its own methods named ``pre_<stage>``, ``post_<stage>`` and ``around_<stage>`` are hooks too, and run before
    those of the extensions.

    Attributes:
        extensions: on the class, a list or dict to start with; on an object, a view of them by name.
        fixtures: what is alive now.

    Args:
        extensions: added to those of the class; one of the same name replaces the class's.

    Raises:
        HookError: a hook could never be called as it is written, or something is no extension.
    """

    extensions: Extensions = ()
    fixtures: Fixtures

    _extensions: dict[str, Extension]
    _own_hooks: list[Hook]
    _hooks: dict[str, list[Hook]]  # extension name -> its hooks
    _plans: Plans
    _named_calls: dict[Any, NamedCall]  # function of a method -> its wishes, read once

    def __new__(cls, *args: Any, **kwargs: Any) -> Any:
        # Here rather than in __init__, so that a subclass need not remember to call it.
        self = super().__new__(cls)
        self.fixtures = Fixtures(**self._always_there())
        self._plans = Plans()
        self._named_calls = {}
        self._own_hooks = read_hooks(self, owner="")
        self._hooks = {}
        self._extensions = {}
        self.__dict__["extensions"] = MappingProxyType(self._extensions)
        for name, extension in named(cls.extensions).items():
            self.add_extension(extension, name)
        self._use_hooks()
        return self

    def __init__(self, extensions: Extensions | None = None) -> None:
        for name, extension in named(extensions).items():
            self.add_extension(extension, name)

    def staged(
        self, name: str, fixtures: Mapping[str, Any] | None = None, defaults: Mapping[str, Any] | None = None
    ) -> Stage:
        """Mark a part of a method as a stage: ``with self.staged("train_step_batch", {"batch": batch}):``.

        Args:
            name: an identifier; hooks are named after it.
            fixtures: defined as the stage opens, gone when it ends.
            defaults: the same, but only where the name is not alive yet.

        Raises:
            FixtureExists: one of ``fixtures`` is alive already.
            StageError: the name cannot be a stage's, or a hook of this object is running.
        """
        return self._stage(sys._getframe(1), name, fixtures, defaults)

    def call_by_name(self, function: Callable[..., R]) -> R:
        """Call a function with the live fixtures that its parameters name, as hooks are called.

        The signature of a method of this object is read once.

        Raises:
            FixtureNotFound: it names something that is not alive.
        """
        self.fixtures.require_own_strand()
        method = getattr(function, "__func__", None)
        if method is None or getattr(function, "__self__", None) is not self:
            return cast(R, NamedCall(function)(self.fixtures))
        call = self._named_calls.get(method)
        if call is None:
            label = f"{type(self).__name__}.{function.__name__}"
            call = self._named_calls[method] = NamedCall(function, label)
        return cast(R, call(self.fixtures))

    def add_extension(self, extension: Extension, name: str | None = None) -> Extension:
        """Add an extension, from the next stage that opens.

        Args:
            extension: the object that holds the hooks.
            name: what ``self[name]`` finds; an extension of this name is replaced. Left out, it is made from
                the class.

        Returns:
            The extension, so that it can be made and kept in one line.

        Raises:
            HookError: one of its hooks could never be called; nothing has changed then.
        """
        name = free_name(checked(extension), self._extensions) if name is None else name
        self._refuse_twice(extension, name)
        hooks = read_hooks(extension, name, extension.priority)
        refuse_foreign_names(extension, type(self))
        self._extensions[name] = extension
        self._hooks[name] = hooks
        self._use_hooks()
        return extension

    def remove_extension(self, name: str) -> Extension:
        """Take an extension out, from the next stage that opens, and return it.

        Raises:
            ExtensionNotFound: none has this name.
        """
        extension = self[name]
        del self._extensions[name], self._hooks[name]
        self._use_hooks()
        return extension

    def __getitem__(self, name: str) -> Extension:
        try:
            return self._extensions[name]
        except KeyError:
            nearest = near(name, self._extensions)
            there = ", ".join(self._extensions) or "none"
            raise ExtensionNotFound(
                f"{type(self).__name__} has no extension {name!r}",
                name=name,
                nearest=nearest,
                cure=did_you_mean(nearest) or f"its extensions: {there}",
            ) from None

    def _always_there(self) -> dict[str, Any]:
        """Fixtures that need no stage; a subclass may add its own name for itself."""
        return {"extensible": self}

    def _all_hooks(self) -> list[Hook]:
        return [*self._own_hooks, *(hook for hooks in self._hooks.values() for hook in hooks)]

    def _use_hooks(self) -> None:
        self._plans.use(self._all_hooks())

    def _refuse_twice(self, extension: Extension, name: str) -> None:
        for taken, there in self._extensions.items():
            if there is extension and taken != name:
                raise HookError(
                    f"this {type(extension).__name__} is an extension here already, as {taken!r}",
                    name=name,
                    cure=f"its hooks would run twice; add another {type(extension).__name__}()",
                )

    def _stage(
        self,
        frame: FrameType,
        name: str,
        fixtures: Mapping[str, Any] | None,
        defaults: Mapping[str, Any] | None,
    ) -> Stage:
        return Stage(name, site_of(frame), self.fixtures, self._plans, fixtures, defaults)


def staged(name: str, fixtures: Mapping[str, Any] | None = None, defaults: Mapping[str, Any] | None = None) -> Stage:
    """``self.staged(...)``, written bare inside a method of an Extensible.

    >>> from train_manager import Extensible, staged
    >>> class Worker(Extensible):
    ...     def work(self):
    ...         with staged("work", {"size": 2}):
    ...             print(self.fixtures["stage"].path)
    >>> Worker().work()
    ('work',)

    Raises:
        TypeError: it stands anywhere else.
    """
    frame = sys._getframe(1)
    return _calling_extensible(frame)._stage(frame, name, fixtures, defaults)


def _calling_extensible(frame: FrameType) -> Extensible:
    """The ``self`` of the method that this frame runs, or of the method that it is nested in."""
    code = frame.f_code
    variables = frame.f_locals
    first = variables.get(code.co_varnames[0]) if code.co_argcount else None
    found = first if isinstance(first, Extensible) else variables.get("self")
    if sys.version_info < (3, 13) and code.co_flags & inspect.CO_OPTIMIZED:
        variables.clear()  # a copy that Python would keep with the frame, and with it every local value
    if isinstance(found, Extensible):
        return found
    raise HookError(
        f"{code.co_qualname} calls staged(...), but is no method of an Extensible",
        name="staged",
        asked_by=code.co_qualname,
        asked_at=line_of(site_of(frame)),
        cure="write `extensible.staged(...)` with the object whose stage it is",
    )
