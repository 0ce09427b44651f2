"""Learning rate schedulers, of ``lr_schedule=`` and of ``LRSchedule``: made, checked, saved and loaded."""

from __future__ import annotations

import copy
import inspect
import warnings
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, NamedTuple, final

from torch.optim import Optimizer

from train_manager.checkpoints.fit import (
    Difference,
    Left,
    class_misfit,
    options_that_differ,
    schedule_misfit,
)
from train_manager.checkpoints.made import Made, config_of
from train_manager.loop.arguments import kind_of
from train_manager.model.optimizers import learning_rates, restore_settings, set_learning_rates, settings_of
from train_manager.model.per_object import PerObject
from train_manager.telling.errors import InputError
from train_manager.telling.source_locations import users_level

EXAMPLE: Final = "lambda optimizer: torch.optim.lr_scheduler.StepLR(optimizer, 10)"

KIND: Final = "lr_schedule"
"""The entry of schedulers in a saved state: their states by the names of their optimizers, and in "fit" how they were
made."""

Schedules = Any
"""A scheduler, or a dict of them by optimizer; torch's schedulers have no common base class with ``step()``."""


# ---- made ------------------------------------------------------------------------------------------------------------


@final
class Taker(NamedTuple):
    """What takes a function that makes a scheduler, for the error texts."""

    name: str  # of the extension or the argument
    argument: str  # the argument that the function is given to
    form: str  # the source of that argument: "lr_schedule={}"


def require_scheduler_factory(make: Any, taker: Taker) -> None:
    """Require a function that makes a scheduler of the optimizer alone.

    Args:
        make: what was given.
        taker: what it was given to.

    Raises:
        InputError: it is not a function, or needs more arguments, which the message names.
    """
    if not callable(make):
        # A scheduler that is made already, or something else.
        like = f"lambda optimizer: torch.optim.lr_scheduler.{type(make).__name__}(optimizer, ...)"
        raise InputError(
            f"{taker.name} needs a function of the optimizer, but was given {kind_of(make)}",
            name=taker.argument,
            asked_by=taker.name,
            cure=taker.form.format(like if hasattr(make, "step") else EXAMPLE),
        )
    try:
        parameters = [*inspect.signature(make).parameters.values()][1:]
    except ValueError:  # a function in C without a signature
        return
    more = [p.name for p in parameters if p.default is p.empty and p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)]
    if more:
        called = getattr(make, "__name__", type(make).__name__)
        arguments = ", ".join(f"{name}=..." for name in more)
        raise InputError(
            f"{taker.name} was given {called}, which needs more than the optimizer: {', '.join(more)}",
            name=more[0],
            asked_by=taker.name,
            cure="give a function: " + taker.form.format(f"lambda optimizer: {called}(optimizer, {arguments})"),
        )


def make_scheduler(
    make: Callable[[Optimizer], Any], optimizer: Optimizer, taker: Taker, *, with_metric: str | None
) -> Any:
    """Return the scheduler that a function makes of an optimizer.

    Args:
        make: the function.
        optimizer: the optimizer.
        taker: what the function was given to.
        with_metric: the cure for a scheduler that needs a metric; None if a metric is named.

    Raises:
        InputError: the function makes something else, or a scheduler that needs a metric, if no metric is named.
    """
    scheduler = make(optimizer)
    if not hasattr(scheduler, "step"):
        what = f"{taker.name} must make a scheduler with step(), but made {kind_of(scheduler)}"
        raise InputError(what, name=taker.argument, asked_by=taker.name, cure=taker.form.format(EXAMPLE))
    if with_metric is not None and needs_metric(scheduler):
        what = f"{taker.name} steps without a metric, but {type(scheduler).__name__} needs one"
        raise InputError(what, name=taker.argument, asked_by=taker.name, cure=with_metric)
    return scheduler


def counts_steps(scheduler: Any) -> bool:
    """Return whether a scheduler is told how many epochs or updates are done: ``step(n)`` and ``step_update(n)``.

    These are the methods of timm's schedulers, which are not torch's.
    """
    return callable(getattr(scheduler, "step_update", None))


def needs_metric(scheduler: Any) -> bool:
    """Return whether a scheduler steps with a metric, as ``ReduceLROnPlateau``; torch has no common class for these."""
    if counts_steps(scheduler):
        return False
    parameters = inspect.signature(scheduler.step).parameters.values()
    return any(p.default is p.empty and p.kind is p.POSITIONAL_OR_KEYWORD for p in parameters)


# ---- the argument lr_schedule ----------------------------------------------------------------------------------------


def require_lr_schedule(value: Any, optimizer: Optimizer | dict[str, Optimizer] | None) -> Schedules:
    """Return the scheduler that a callable makes of the optimizer; or several, by the names of the optimizers."""
    if value is None:
        return None
    if optimizer is None:
        raise InputError("lr_schedule needs an optimizer, but there is none", name="lr_schedule")
    if isinstance(value, Mapping) != isinstance(optimizer, dict):
        cure = "give a dict with the names of the optimizers, or one callable for one optimizer"
        raise InputError("lr_schedule and optimizer must both be dicts, or neither", name="lr_schedule", cure=cure)
    if not isinstance(optimizer, dict):
        return _scheduler(value, optimizer)
    unknown = [name for name in value if name not in optimizer]
    if unknown:
        known = " and ".join(map(repr, optimizer))
        what = f"lr_schedule names {unknown[0]!r}, but the optimizers are {known}"
        raise InputError(what, name="lr_schedule", cure="give it the names of the optimizers")
    return {name: _scheduler(make, optimizer[name]) for name, make in value.items()}


def _scheduler(make: Any, optimizer: Optimizer) -> Any:
    taker = Taker("lr_schedule", "lr_schedule", "lr_schedule={}")
    require_scheduler_factory(make, taker)
    example = 'LRSchedule(torch.optim.lr_scheduler.ReduceLROnPlateau, monitor="valid/loss")'
    cure = f"step it with a metric: extensions=[{example}]"
    scheduler = make_scheduler(make, optimizer, taker, with_metric=cure)
    if counts_steps(scheduler):
        what = f"lr_schedule steps without a number, but {type(scheduler).__name__} steps with the number of epochs"
        raise InputError(what, name="lr_schedule", cure="give the same function to the extension LRSchedule")
    return scheduler


def require_schedules_of(schedulers: Schedules, optimizers: Mapping[str, Any]) -> None:
    """Require schedulers of these optimizers: an optimizer may have been replaced since its scheduler was made."""
    # By groups: a wrapped optimizer is another object, but shares its groups with the one inside.
    groups = {id(group) for optimizer in optimizers.values() for group in optimizer.param_groups}
    for scheduler in schedulers_in(schedulers):
        scheduled = getattr(scheduler, "optimizer", None)  # a scheduler of another library may have none
        if scheduled is not None and groups.isdisjoint(map(id, scheduled.param_groups)):
            raise InputError(
                f"lr_schedule ({type(scheduler).__name__}) is of another optimizer, so no rate would change",
                name="lr_schedule",
                cure="was tm.optimizer replaced? make it anew: tm.lr_schedule = StepLR(tm.optimizer, 10)",
            )


def warn_of_steps_per_batch(schedulers: Schedules, epochs: int) -> None:
    """Warn of a scheduler that was made for each batch, as ``OneCycleLR`` often is: here it steps once per epoch."""
    for scheduler in schedulers_in(schedulers):
        total = getattr(scheduler, "total_steps", None)  # OneCycleLR has it
        if isinstance(total, int) and total > epochs:
            name = type(scheduler).__name__
            warnings.warn(
                f"lr_schedule steps once per epoch, so {name} gets to step {epochs} of its {total} (the extension "
                'LRSchedule(..., per="step") steps with the optimizer)',
                stacklevel=users_level(),
            )


def schedulers_in(schedulers: Schedules) -> list[Any]:
    """Return the schedulers in a list."""
    if schedulers is None:
        return []
    return list(schedulers.values()) if isinstance(schedulers, dict) else [schedulers]


# ---- the schedulers of a training ------------------------------------------------------------------------------------


class Saved(NamedTuple):
    """A saved scheduler."""

    state: Any  # what its state_dict has returned
    made: Made  # how it was made; and of its optimizer the kind, and the rates that it had
    steps: int  # how many steps it had done


@final
class Schedulers:
    """The schedulers of the optimizers that a training, or a phase of it, has met."""

    def __init__(self, make: Callable[[Optimizer], Any], *, per: str) -> None:
        self._make, self._per = make, per
        self._steps = 0  # of the present scheduler
        self.scheduler: Any = None  # of the optimizer that is trained now; None before there is one
        self.is_idle = False  # in a phase without the optimizer: it must not step
        self._optimizer: Optimizer | None = None  # the optimizer that the scheduler belongs to
        self._made: Made = {}  # how the scheduler was made in this program
        self._made_there: Made = {}  # how the loaded scheduler was made, in the program that saved it
        self._name = ""  # the name of that optimizer in checkpoints: the phase that has brought it
        self._put_away: PerObject[Optimizer, tuple[str, Saved]] = PerObject()  # of swapped optimizers, by name
        self._loaded: dict[str, Saved] = {}  # loaded states that wait for their optimizers, by name

    def has(self, optimizer: Optimizer) -> bool:
        """Return whether an optimizer has a scheduler here."""
        return optimizer is self._optimizer or optimizer in self._put_away

    def uses(self, optimizer: Optimizer) -> bool:
        """Return whether the present scheduler is that of an optimizer."""
        return optimizer is self._optimizer

    def step(self, *metric: float) -> None:
        """Step the scheduler."""
        if self.scheduler is None or self.is_idle:  # None: joined an open run
            return
        self._steps += 1
        if not counts_steps(self.scheduler):
            self.scheduler.step(*metric)
        elif self._per == "step":
            self.scheduler.step_update(self._steps)
        else:
            self.scheduler.step(self._steps, *metric)

    def use(self, optimizer: Optimizer, name: str, *, keeps_rates: bool) -> None:
        """Make the scheduler of an optimizer, anew or as it was when another took the optimizer's place.

        It must not be the optimizer of the present scheduler.

        Args:
            optimizer: the one that is trained now.
            name: its name in a checkpoint.
            keeps_rates: a scheduler elsewhere has set its rates.
        """
        if self._optimizer is not None and hasattr(self.scheduler, "state_dict"):
            # The state, not the scheduler itself, which would keep the swapped optimizer alive.
            self._put_away[self._optimizer] = self._name, self._saved(self._optimizer)
        # Making a scheduler sets the first rates. Where another
        # scheduler has brought the rates further, they are put back.
        settings = settings_of(optimizer)
        self.scheduler, self._steps = self._make(optimizer), 0
        self._optimizer, self._name = optimizer, name
        self._made, self._made_there = config_of(self.scheduler), {}
        if name in self._loaded:
            restore_settings(optimizer, settings)
            self._take_loaded()
        # The optimizer was here before: its scheduler continues with the state from then.
        elif optimizer in self._put_away:
            saved = self._put_away.pop(optimizer)[1]
            self._made_there, self._steps = saved.made, saved.steps
            self.scheduler.load_state_dict(saved.state)
            restore_settings(optimizer, settings)
        elif keeps_rates:
            restore_settings(optimizer, settings)

    def state_dict(self) -> dict[str, Any]:
        """Return the state of each scheduler and how it was made, in the form that a training has for its own."""
        found = {**self._loaded, **dict(self._put_away.values())}
        if self._optimizer is not None and hasattr(self.scheduler, "state_dict"):
            found[self._name] = self._saved(self._optimizer)
        if not found:
            return {}
        made = {name: saved.made for name, saved in found.items()}
        steps = {name: saved.steps for name, saved in found.items()}
        return {KIND: {name: saved.state for name, saved in found.items()}, "fit": {KIND: made}, "steps": steps}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore what ``state_dict`` returned, as far as the optimizers are here."""
        saved = copy.deepcopy(state.get(KIND, {}))  # a scheduler goes on with the lists of the state that it loads
        self._loaded = {name: Saved(one, state["fit"][KIND][name], state["steps"][name]) for name, one in saved.items()}
        for optimizer, (name, _) in list(self._put_away.items()):
            if name in self._loaded:
                self._put_away[optimizer] = name, self._loaded.pop(name)
        self._take_loaded()

    def compared_with(self, state: Mapping[str, Any], left: Left, per: str) -> Iterator[str | Difference]:
        """Yield why the present scheduler cannot resume from a saved one, or which of its options differ."""
        if self._optimizer is None or self._name not in state.get(KIND, {}):
            return
        label, made = f"the scheduler of LRSchedule ({type(self.scheduler).__name__})", state["fit"][KIND][self._name]
        misfit = schedule_misfit(
            label, self.scheduler, state[KIND][self._name], made, left, per, is_of_another=self._is_of_another(made)
        )
        if misfit is not None:
            yield misfit
        else:
            yield from options_that_differ(label, self._made, made)

    def _saved(self, optimizer: Optimizer) -> Saved:
        """Return the present scheduler as it is saved; one that has resumed was made as the loaded one was."""
        of_optimizer = {"optimizer": _kind_of(optimizer), "rates": list(learning_rates(optimizer))}
        made = {**(self._made_there or self._made), **of_optimizer}
        return Saved(copy.deepcopy(self.scheduler.state_dict()), made, self._steps)

    def _is_of_another(self, made: Made) -> bool:
        """Return whether a scheduler was saved with an optimizer of another class, or of other groups."""
        return bool(made["optimizer"] != _kind_of(self._optimizer))

    def _take_loaded(self) -> None:
        """Load the state that waits for the present optimizer; drop a state of another kind."""
        if self._optimizer is not None and self._name in self._loaded:
            saved = self._loaded.pop(self._name)
            if not self._is_of_another(saved.made) and not class_misfit("", self.scheduler, saved.made):
                self._made_there, self._steps = saved.made, saved.steps
                self.scheduler.load_state_dict(saved.state)
                set_learning_rates(self._optimizer, saved.made["rates"])  # which load_state_dict does not set


def _kind_of(optimizer: Optimizer | None) -> str:
    """Return the class of an optimizer, and the number of its groups."""
    return "" if optimizer is None else f"{type(optimizer).__name__} of {len(optimizer.param_groups)} groups"
