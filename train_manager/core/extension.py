"""An extension: an object whose hooks run around the stages of an Extensible; and the names they go by."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from train_manager.core.errors import HookError
from train_manager.core.schedule import load_states, states_of


class Extension:
    """Base class of everything that is not the algorithm: plots, logs, checks, training practices.

    Write methods named ``pre_<stage>``, ``post_<stage>`` or ``around_<stage>``; each gets the live fixtures that
    its parameters name. It is a plain object: its methods can be called by hand, and that is its unit test.

    >>> from train_manager import Extension
    >>> class Largest(Extension):
    ...     value = float("-inf")
    ...     def post_train_step_batch(self, loss):
    ...         self.value = max(self.value, float(loss))
    >>> largest = Largest()
    >>> largest.post_train_step_batch(loss=.3)
    >>> largest.value
    0.3

    Attributes:
        priority: on the class or the object: place of its hooks among those of other extensions that nothing else
            orders; lowest first, then as registered.
        shared: on the class: one object may serve two Extensibles that have stages open at the same time.
    """

    priority: int = 0
    shared: bool = False

    def state_dict(self) -> dict[str, Any]:
        """What must survive in a checkpoint: dicts, lists, tensors, numbers, strings. Here: that of its schedules.

        Write ``{**super().state_dict(), "value": self.value}`` where there is more.
        """
        states = states_of(self)
        return {"schedules": states} if states else {}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take that back."""
        load_states(self, state.get("schedules", {}))

    @staticmethod
    def of(**hooks: Callable[..., Any]) -> Extension:
        """An extension made of functions, for what is written on the spot.

        >>> from train_manager import Extension, Extensible
        >>> class Worker(Extensible):
        ...     def work(self):
        ...         with self.staged("work", {"size": 2}):
        ...             pass
        >>> Worker([Extension.of(pre_work=lambda size: print("size", size))]).work()
        size 2

        Args:
            hooks: functions by the names of hooks; they take fixtures, and no ``self``.

        Raises:
            HookError: a name is not a hook's.
        """
        for name, function in hooks.items():
            if name.partition("_")[0] not in ("pre", "post", "around") or not callable(function):
                raise HookError(
                    f"Extension.of was given {name}={function!r:.60}, which is no hook",
                    name=name,
                    cure="give functions by the names of hooks: Extension.of(post_train_step_batch=lambda loss: ...)",
                )
        methods = {name: staticmethod(function) for name, function in hooks.items()}
        made: Extension = type("Hooks", (Extension,), methods)()
        return made


Extensions = Mapping[str, Extension] | Iterable[Extension]
"""How a set of extensions is given: a list (names are made from the classes), or a dict of names."""


def named(extensions: Extensions | None) -> dict[str, Extension]:
    """The extensions by name. In a list the name is the class's in snake_case, a second of a class gets ``_2``.

    Raises:
        HookError: something in it is no extension.
    """
    if isinstance(extensions, Mapping):
        return {name: checked(extension) for name, extension in extensions.items()}
    if isinstance(extensions, type) or not (extensions is None or hasattr(extensions, "__iter__")):
        what, cls = ("the class", extensions) if isinstance(extensions, type) else ("one", type(extensions))
        cure = f"give a list: extensions=[{cls.__name__}()]"
        raise HookError(f"extensions is {what} {cls.__name__}", name="extensions", cure=cure)
    found: dict[str, Extension] = {}
    for extension in extensions or ():
        found[free_name(checked(extension), found)] = extension
    return found


def checked(extension: Extension) -> Extension:
    """The extension itself, if it is one.

    Raises:
        HookError: it is a class, or no Extension, or its priority is no number.
    """
    if isinstance(extension, Extension):
        if not isinstance(extension.priority, int):
            name = type(extension).__name__
            what = f"{name}.priority is {extension.priority!r:.60}"
            raise HookError(what, name=name, cure="give a whole number: priority = -1")
        return extension
    if isinstance(extension, type) and issubclass(extension, Extension):
        what, cure = f"{extension.__name__} is a class", f"add an instance: {extension.__name__}()"
    else:
        what = f"{type(extension).__name__} {extension!r:.60} is no extension"
        cure = "derive its class from train_manager.Extension"
    raise HookError(what, name=getattr(extension, "__name__", type(extension).__name__), cure=cure)


def free_name(extension: Extension, taken: Mapping[str, Extension]) -> str:
    """``LossCurves`` -> ``loss_curves``; where that is taken ``loss_curves_2``, and so on."""
    name = re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", type(extension).__name__).lower()
    number = 2
    free = name
    while free in taken:
        free = f"{name}_{number}"
        number += 1
    return free
