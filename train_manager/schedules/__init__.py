"""Schedules: decorators above a hook that say at which openings of its stage it runs.

    every(50)                     openings 50, 100, 150, ...; with first=True 1, 50, 100, ...
    every(50, of="update")        as soon as stage "update" has ended 50, 100, 150, ... times
    exponentially(100, 1.2)       openings 100, 220, 364, ...
    at_most(10)                   10 times in each run, evenly spread, and at the last step
    periodically(60)              60 seconds after it ran last
    once                          the first opening
    when(lambda loss: loss < .1)  if the function returns something true

A hook with several schedules runs if all of them allow it; they are asked from the top until one refuses. If another
schedule refuses, ``every`` and ``exponentially`` lose that opening; ``every`` of another stage, ``at_most``,
``periodically`` and ``once`` put the hook off to the next opening. A hook that does not run leaves everything as it
was, also the fixtures that it modifies or provides.

Its files in reading order; each imports only those above it:

    rules         the rule by which each schedule decides whether the hook runs
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, Final, TypeVar

from train_manager.core.extension import Extension, is_serving
from train_manager.core.hooks import EVERY_STAGE, KINDS
from train_manager.core.methods import method_names
from train_manager.core.schedule import Schedule, add_schedules
from train_manager.schedules.rules import AtMost, Every, EveryOf, Exponentially, Once, OrAtEnd, Periodically, When
from train_manager.telling.errors import HookError, did_you_mean, near
from train_manager.validation import require_count, require_number

AnExtension = TypeVar("AnExtension", bound=Extension)


def every(n: int, *, first: bool = False, of: str | None = None) -> Schedule:
    """Run at every n-th opening of the hook's stage, counted from 1 over all runs.

    Pre, post and around hooks run at the same openings. A hook of every stage counts the openings of all stages.

    >>> from train_manager import Extensible, Extension, every
    >>> class Watcher(Extension):
    ...     @every(3)
    ...     def post_work(self, number):
    ...         print(number)
    >>> class Worker(Extensible):
    ...     def work(self, number):
    ...         with self.staged("work", {"number": number}):
    ...             pass
    >>> worker = Worker([Watcher()])
    >>> for number in range(1, 10):
    ...     worker.work(number)
    3
    6
    9

    With ``of``, the ends of another stage are counted, and the hook runs the next time its own stage asks it: a post
    hook of a stage around the other one still in the same opening, a pre hook in the next one. Here it runs in the
    batch in which the 250th, the 500th, ... update was done, however many updates a batch does:

    >>> class AtUpdates(Extension):
    ...     @every(250, of="train_optimizer_step")
    ...     def post_train_step_batch(self, step_num):
    ...         print(step_num)

    Ends that are skipped (``SkipStage``, ``SkipBatch``) or fail do not count. The hook runs once if more than one turn
    has come since it ran last.

    Args:
        n: at least 1.
        first: also run at the first opening: 1, n, 2n, ...; with ``of``, after the other stage's first end.
        of: the name of another stage.

    Raises:
        HookError: ``n`` is not a whole number of at least 1, ``first`` is not a bool, or no stage can be called ``of``.
    """
    n = require_count(n, "every's n", at_least=1, cure="write @every(50)", error=HookError)
    if not isinstance(first, bool):
        raise _invalid("every", "every's first must be True or False", first, "write @every(50, first=True)")
    if of is None:  # the stage of the hook itself
        return Every(n, first)
    if not (isinstance(of, str) and of.isidentifier()) or of == EVERY_STAGE:
        cure = 'give the name of one stage: @every(50, of="train_optimizer_step")'
        raise _invalid("every", "every's of must be the name of a stage", of, cure)
    return EveryOf(n, first, of)


def at_most(n: int) -> Schedule:
    """Run ``n`` times in each run, evenly spread, the last time at its last step; at each step if there are fewer.

    While the end is unknown, it runs at the steps 1, 2, 4, 8, ... up to ``n`` times. When the end is known, the times
    that are left are spread evenly over the remaining steps. If none is left, it still runs at the last step, so
    ``n + 1`` times in all.

    >>> from train_manager import Extension, at_most
    >>> class Watcher(Extension):
    ...     @at_most(10)
    ...     def post_train_step_batch(self, loss):
    ...         print(loss)

    Args:
        n: at least 1.

    Raises:
        HookError: ``n`` is not a whole number of at least 1; or, when its stage opens, there is no TrainManager.
    """
    return AtMost(require_count(n, "at_most's n", at_least=1, cure="write @at_most(10)", error=HookError))


def exponentially(start: int, factor: float, at_end: bool = False) -> Schedule:
    """Run at opening number ``start``, and then after gaps that grow by ``factor``.

    ``exponentially(100, 1.2)`` runs at 100, 220, 364, ...: the first gap is ``start * factor``; numbers are rounded.

    >>> from train_manager import Extension, exponentially
    >>> class Watcher(Extension):
    ...     @exponentially(100, 1.2, at_end=True)
    ...     def post_train_step_batch(self, loss):
    ...         print(loss)

    Args:
        start: the first opening, counted from 1 over all runs.
        factor: at least 1.
        at_end: also run at the last step of each run; only once if the last step is one of the others.

    Raises:
        HookError: an argument is out of range; or, with ``at_end``, there is no TrainManager when its stage opens.
    """
    start = require_count(start, "exponentially's start", at_least=1, error=HookError)
    schedule = Exponentially(start, require_number(factor, "exponentially's factor", at_least=1, error=HookError))
    return OrAtEnd(schedule) if at_end else schedule


def periodically(seconds: float, at_end: bool = False, clock: Callable[[], float] = time.monotonic) -> Schedule:
    """Run when this many seconds have passed since it ran last; the first time, since its stage first opened.

    The seconds count from the end of the hook, so a slow hook does not crowd out the training. The time between two
    runs of a TrainManager does not count.

    >>> from train_manager import Extension, periodically
    >>> class Watcher(Extension):
    ...     @periodically(60)
    ...     def post_train_step_batch(self, loss):
    ...         print(loss)

    Args:
        seconds: more than 0.
        at_end: also run at the last step of each run; only once if the time has passed at that step.
        clock: a function that returns the seconds since any fixed moment.

    Raises:
        HookError: an argument is invalid; or, with ``at_end``, there is no TrainManager when its stage opens.
    """
    cure = "write @periodically(60)"
    seconds = require_number(seconds, "periodically's seconds", above=0, cure=cure, error=HookError)
    if not callable(clock):
        cure = "give a function that tells the time: clock=time.monotonic"
        raise _invalid("periodically", "periodically's clock must be a function", clock, cure)
    schedule = Periodically(seconds, clock)
    return OrAtEnd(schedule) if at_end else schedule


def when(function: Callable[..., Any]) -> Schedule:
    """Run if a function of fixtures, which its parameters name, returns something true.

    >>> from train_manager import Extension, when
    >>> class Alarm(Extension):
    ...     @when(lambda grad_norm: grad_norm > 100)
    ...     def post_train_step_batch(self, step_num):
    ...         print("large gradients at step", step_num)

    The function is called at every opening, and a condition on a tensor makes Python wait for the device. With a
    schedule above, it is called only if that one lets the hook run: ``@every(100)`` above ``@when(...)``.

    Args:
        function: its parameters name fixtures.

    Raises:
        HookError: it is not a function.
    """
    if not callable(function) or isinstance(function, Schedule):  # `@when(every(2))`: a schedule can be called too
        cure = "give a function of fixtures: @when(lambda loss: loss < .1)"
        raise _invalid("when", "when's argument must be a function", function, cure)
    return When(function)


def scheduled(extension: AnExtension, hook: str, *schedules: Schedule) -> AnExtension:
    """Add schedules to a hook of one object, in addition to the schedules of its class.

    >>> from train_manager import Extension, every, scheduled
    >>> class Watcher(Extension):
    ...     def post_train_step_batch(self, step_num):
    ...         print("step", step_num)
    >>> from train_manager.testing import tiny_manager
    >>> result = tiny_manager(scheduled(Watcher(), "post_train_step_batch", every(2)), epochs=2).train()
    step 2
    step 4
    step 6

    Args:
        extension: an extension that was not added yet.
        hook: the name of its method.
        schedules: the hook runs if all of them allow it.

    Returns:
        The extension.

    Raises:
        HookError: there is no such hook, or the extension was added already.
    """
    _require_hook(extension, hook)
    for schedule in schedules or (None,):  # None: no schedule was given, which is refused as a wrong one is
        if not isinstance(schedule, Schedule):
            must = f"the schedule of {type(extension).__name__}.{hook} must be a Schedule"
            raise _invalid("scheduled", must, schedule, "give one, such as every(50)")
    add_schedules(extension, hook, schedules)
    return extension


once: Final[Schedule] = Once()
"""Run at the first opening, and never again, also in a second run or after a checkpoint.

>>> from train_manager import Extension, once
>>> class Shapes(Extension):
...     @once
...     def post_train_model_forward(self, inputs, prediction):
...         print(inputs.shape, prediction.shape)

With another schedule, it is the first opening at which that one lets the hook run.
"""


def _require_hook(extension: Extension, hook: str) -> None:
    """Refuse a hook that the object does not have, and an object that was added already."""
    label = type(extension).__name__
    if not isinstance(extension, Extension):
        cure = 'give an object: scheduled(LossCurves(), "post_eval", every(2))'
        raise _invalid("scheduled", "scheduled's extension must be an Extension", extension, cure)
    hooks = [name for name in method_names(extension) if name.startswith(tuple(f"{kind}_" for kind in KINDS))]
    if hook not in hooks:
        cure = did_you_mean(near(str(hook), hooks)) or f"its hooks: {', '.join(hooks) or 'none'}"
        raise HookError(f"{label} has no hook {hook!r:.60} to schedule", name=str(hook), cure=cure)
    if is_serving(extension):  # its hooks were read with their schedules as it was added
        what = f"{label}.{hook} cannot be scheduled: the extension was added already"
        raise HookError(what, name=hook, cure="schedule its hooks before you add it")


def _invalid(name: str, must: str, value: object, cure: str) -> HookError:
    return HookError(f"{must}, but is {value!r:.60}", name=name, cure=cure)
