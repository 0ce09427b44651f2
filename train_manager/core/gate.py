"""A gate: what decides, each time a stage opens, whether one of its hooks runs. Schedules are made of it."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

from train_manager.core.marks import Function, marked_with


class Gate:
    """Base class of decorators that let a hook run only now and then.

    >>> from train_manager import Extension
    >>> class Alternating(Gate):
    ...     count = 0
    ...     def opened(self):
    ...         self.count += 1
    ...     def is_due(self):
    ...         return self.count % 2 == 1
    >>> class Watcher(Extension):
    ...     @Alternating()
    ...     def post_train_step_batch(self, loss):
    ...         print(loss)

    One that is written above a method stands for all objects of the class; each object gets a copy of its own as it
    is added to an Extensible. What the copy remembers is in its ``__dict__``: numbers, strings, and no more.
    """

    def __call__(self, hook: Function) -> Function:
        return marked_with(hook, self)

    def opened(self) -> None:
        """The stage opens; called before its hooks run, also where the hook runs at the end."""

    is_due: Callable[..., bool]
    """Whether the hook is to run now; it may name fixtures."""

    def finished(self) -> None:
        """The hook has run."""

    def state_dict(self) -> dict[str, Any]:
        """What it remembers."""
        return {name: value for name, value in vars(self).items() if isinstance(value, int | float | str | None)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take that back."""
        vars(self).update(state)

    def copy(self) -> Gate:
        """One for another object."""
        return copy.copy(self)
