"""A gate: what decides, each time a stage opens, whether one of its hooks runs. Schedules are made of it."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Self

from train_manager.core.decorators import Function, marked_with, marks_of
from train_manager.core.methods import unbound
from train_manager.core.scope import Scope

GATES = "_gates"
"""The attribute in which an object keeps the gates of its hooks, by the hook's name."""


class Gate:
    """Base class of decorators that let a hook run only now and then.

    >>> from train_manager import Extension
    >>> class Alternating(Gate):
    ...     count = 0
    ...     def opened(self, stage, alive):
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

    def opened(self, stage: Scope, alive: Mapping[str, Any]) -> None:
        """The stage opens; called before its hooks run, also where the hook runs at the end.

        Args:
            stage: the one that opens; where it nests in itself, each of them.
            alive: all fixtures, those on demand left out.
        """

    is_due: Callable[..., bool]
    """Whether the hook is to run now; it may name fixtures. Not asked where another gate has said no already."""

    def finished(self) -> None:
        """The hook has run, perhaps into an error."""

    def state_dict(self) -> dict[str, Any]:
        """What it remembers."""
        return {name: value for name, value in vars(self).items() if isinstance(value, int | float | str | None)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take that back."""
        vars(self).update(state)

    def copy(self) -> Self:
        """One for another object."""
        return copy.copy(self)


def gates_of(holder: object, hook: str) -> list[Gate]:
    """An object's own gates of one hook, as read from above; made once, so that they go on where it is added again."""
    of_object: dict[str, list[Gate]] = getattr(holder, GATES, None) or {}
    if hook not in of_object:
        above = [gate.copy() for gate in marks_of(unbound(holder, hook)).gates]
        if not above:
            return []
        of_object = {**of_object, hook: above}
        setattr(holder, GATES, of_object)
    return of_object[hook]


def add_gates(holder: object, hook: str, gates: Sequence[Gate]) -> None:
    """Give one object's hook more of them, above those that it has."""
    own = [*(gate.copy() for gate in gates), *gates_of(holder, hook)]
    setattr(holder, GATES, {**(getattr(holder, GATES, None) or {}), hook: own})


def states_of(holder: object) -> dict[str, list[dict[str, Any]]]:
    """What the gates of an object remember, by hook."""
    of_object: dict[str, list[Gate]] = getattr(holder, GATES, None) or {}
    return {hook: [gate.state_dict() for gate in gates] for hook, gates in of_object.items()}


def load_states(holder: object, states: Mapping[str, Sequence[Mapping[str, Any]]]) -> None:
    """Take that back, also where the object has not been added to an Extensible yet."""
    for hook, of_hook in states.items():
        if hasattr(holder, hook):  # the code may have changed since
            for gate, state in zip(gates_of(holder, hook), of_hook, strict=False):
                gate.load_state_dict(state)
