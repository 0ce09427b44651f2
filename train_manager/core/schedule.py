"""A schedule decides, each time a stage opens, whether one of its hooks runs."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, Self

from train_manager.core.declarations import Function, declarations_of, with_schedule
from train_manager.core.methods import unbound
from train_manager.core.scope import Scope
from train_manager.telling.errors import HookError

SCHEDULES = "_schedules"
"""The attribute in which an object keeps the schedules of its hooks, by the hook's name."""


class Schedule:
    """Base class of decorators that let a hook run only now and then; extensions take schedules as arguments too.

    >>> from train_manager import Extension
    >>> class Alternating(Schedule):
    ...     remembers = ("count",)
    ...     count = 0
    ...     def opened(self, stage, alive):
    ...         self.count += 1
    ...     def should_run(self):
    ...         return self.count % 2 == 1
    >>> class Watcher(Extension):
    ...     @Alternating()
    ...     def post_train_step_batch(self, loss):
    ...         print(loss)

    A schedule above a method stands for all objects of the class; each object gets a copy of its own as it is added to
    an Extensible.
    """

    remembers: ClassVar[tuple[str, ...]] = ()
    """Attributes that belong to a checkpoint: numbers and strings. Arguments do not: the code of today decides them."""

    of: str | None = None
    """Another stage at whose ends ``ended`` is called; None stands for no stage."""

    def __call__(self, hook: Function) -> Function:
        if inspect.ismethod(hook):  # of one object: declarations on its function would hold for all objects
            cure = f'to schedule a hook of one object, write scheduled(extension, "{hook.__name__}", {self})'
        elif isinstance(hook, staticmethod | classmethod) or (callable(hook) and not isinstance(hook, type | Schedule)):
            return with_schedule(hook, self)
        else:
            cure = "write it above a method pre_<stage>, post_<stage> or around_<stage>"
        raise HookError(f"@{self} was given {hook!r:.60}, which is not a hook", name="schedule", cure=cure)

    def opened(self, stage: Scope, alive: Mapping[str, Any]) -> None:
        """Take note that the stage opens; called before its hooks run, also for a hook that runs at the end.

        Args:
            stage: the stage that opens; if it nests in itself, each of them.
            alive: the fixtures; reading a lazy one computes it.
        """

    def ended(self, stage: Scope, alive: Mapping[str, Any]) -> None:
        """Take note that the stage ``of`` ends; called before its post hooks run, but not if it is skipped or fails.

        Args:
            stage: the stage that ends.
            alive: the fixtures; reading a lazy one computes it.
        """

    should_run: Callable[..., bool]  # not a method: each override has its own parameters
    """Return whether the hook runs now; may name fixtures. Not called if another schedule has refused already."""

    def finished(self) -> None:
        """Take note that the hook has run, perhaps into an error."""

    def state_dict(self) -> dict[str, Any]:
        """Return the attributes that ``remembers`` names."""
        return {name: getattr(self, name) for name in self.remembers}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Resume from what ``state_dict`` returned; attributes that it lacks stay as they are."""
        vars(self).update({name: state[name] for name in self.remembers if name in state})

    def copy(self) -> Self:
        """Return a schedule for another object."""
        return copy.copy(self)


def schedules_of(holder: object, hook: str) -> list[Schedule]:
    """Return an object's own schedules of one hook, in the order of the decorators from above."""
    by_hook = _by_hook(holder)
    # Copied once for each object: a schedule counts, and continues its count if the object is added again.
    if hook not in by_hook:
        declared = [schedule.copy() for schedule in declarations_of(unbound(holder, hook)).schedules]
        if not declared:
            return []
        by_hook = {**by_hook, hook: declared}
        _keep(holder, by_hook)
    return by_hook[hook]


def add_schedules(holder: object, hook: str, schedules: Sequence[Schedule]) -> None:
    """Give one object's hook more schedules, above its present ones."""
    own = [*(schedule.copy() for schedule in schedules), *schedules_of(holder, hook)]
    _keep(holder, {**_by_hook(holder), hook: own})


def states_of(holder: object) -> dict[str, list[dict[str, Any]]]:
    """Return the states of an object's schedules, by hook."""
    return {hook: [schedule.state_dict() for schedule in schedules] for hook, schedules in _by_hook(holder).items()}


def load_states(holder: object, states: Mapping[str, Sequence[Mapping[str, Any]]]) -> None:
    """Set an object's schedules to what ``states_of`` returned, also before the object is added to an Extensible."""
    for hook, of_hook in states.items():
        # The code may have changed since: hooks that are gone, and schedules beyond the present ones, are passed over.
        if hasattr(holder, hook):
            for schedule, state in zip(schedules_of(holder, hook), of_hook, strict=False):
                schedule.load_state_dict(state)


def _keep(holder: object, by_hook: dict[str, list[Schedule]]) -> None:
    object.__setattr__(holder, SCHEDULES, by_hook)  # a frozen dataclass refuses a plain assignment


def _by_hook(holder: object) -> dict[str, list[Schedule]]:
    return getattr(holder, SCHEDULES, None) or {}
