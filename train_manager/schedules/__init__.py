"""Schedules: decorators above a hook that say at which openings of its stage it runs.

    every(50)                     openings 50, 100, 150, ...         of certain openings: another schedule that
    exponentially(100, 1.2)       openings 100, 220, 364, ...        refuses one of them leaves it out
    at_most(10)                   10 times, evenly, and at the end   due until the hook has run: another schedule
    periodically(60)              a minute after it has run last     that refuses it puts it off
    once                          the first opening
    when(lambda loss: loss < .1)  where the function says so

Above one hook there may be several: all of them must let it run, and are asked from above until one refuses. A hook
that does not run leaves everything as it was, also the fixtures that it modifies or provides.

Its files in reading order; each imports only those above it:

    rules         how each schedule decides
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, Final, TypeVar

from train_manager.core.errors import HookError, did_you_mean, near
from train_manager.core.extension import Extension
from train_manager.core.methods import method_names
from train_manager.core.registry import is_serving
from train_manager.core.schedule import Schedule, add_schedules
from train_manager.schedules.rules import AtMost, Every, Exponentially, Once, OrAtEnd, Periodically, When
from train_manager.validation import require_count, require_number

_SIDES: Final = ("pre_", "post_", "around_")
AnExtension = TypeVar("AnExtension", bound=Extension)


def every(n: int) -> Schedule:
    """Run at every n-th opening of the hook's stage, counted from 1 over all runs, in pre hooks as in post hooks.

    Nothing is done at the end, unless it is a multiple of ``n``. A hook of every stage counts the openings of all.

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

    Raises:
        HookError: ``n`` is not a whole number of at least 1.
    """
    return Every(require_count(n, "every's n", at_least=1, cure="write @every(50)", error=HookError))


def at_most(n: int) -> Schedule:
    """Run ``n`` times in each run, evenly, the last time at its very last step; at each step where there are fewer.

    While the end is unknown, it runs at the steps 1, 2, 4, 8, ... until it has done so ``n`` times; once the end is
    known, what is left of the ``n`` is spread evenly over the rest. If nothing is left, it still runs at the last step,
    so it may then be ``n + 1`` times.

    >>> from train_manager import Extension, at_most
    >>> class Watcher(Extension):
    ...     @at_most(10)
    ...     def post_train_step_batch(self, loss):
    ...         print(loss)

    Raises:
        HookError: ``n`` is not a whole number of at least 1; or, as its stage opens, there is no TrainManager.
    """
    return AtMost(require_count(n, "at_most's n", at_least=1, cure="write @at_most(10)", error=HookError))


def exponentially(start: int, factor: float, at_end: bool = False) -> Schedule:
    """Run at the opening number ``start``, and then after gaps that grow by ``factor``.

    ``exponentially(100, 1.2)`` is 100, 220, 364, ...: the first gap is ``start * factor``, and each number is rounded.

    >>> from train_manager import Extension, exponentially
    >>> class Watcher(Extension):
    ...     @exponentially(100, 1.2, at_end=True)
    ...     def post_train_step_batch(self, loss):
    ...         print(loss)

    Args:
        start: the first opening, counted from 1 over all runs.
        factor: at least 1.
        at_end: run at the last step of each run too: once, also where the two coincide.

    Raises:
        HookError: an argument is out of range; or, with ``at_end``, there is no TrainManager as its stage opens.
    """
    start = require_count(start, "exponentially's start", at_least=1, error=HookError)
    schedule = Exponentially(start, require_number(factor, "exponentially's factor", at_least=1, error=HookError))
    return OrAtEnd(schedule) if at_end else schedule


def periodically(seconds: float, at_end: bool = False, clock: Callable[[], float] = time.monotonic) -> Schedule:
    """Run when so many seconds have passed since it has run last; the first time, since its stage opened first.

    They count from the end of the hook, so a slow one does not crowd out the training. The time between two runs of a
    TrainManager does not count.

    >>> from train_manager import Extension, periodically
    >>> class Watcher(Extension):
    ...     @periodically(60)
    ...     def post_train_step_batch(self, loss):
    ...         print(loss)

    Args:
        seconds: more than 0.
        at_end: run at the last step of each run too: once, also where the two coincide.
        clock: gives the seconds since some moment.

    Raises:
        HookError: an argument is of no use; or, with ``at_end``, there is no TrainManager as its stage opens.
    """
    seconds = require_number(
        seconds, "periodically's seconds", above=0, cure="write @periodically(60)", error=HookError
    )
    if not callable(clock):
        raise _wrong("periodically", "clock", clock, "give a function that tells the time: clock=time.monotonic")
    schedule = Periodically(seconds, clock)
    return OrAtEnd(schedule) if at_end else schedule


def when(function: Callable[..., Any]) -> Schedule:
    """Run where a function of fixtures, which its parameters name, returns something true.

    >>> from train_manager import Extension, when
    >>> class Alarm(Extension):
    ...     @when(lambda grad_norm: grad_norm > 100)
    ...     def post_train_step_batch(self, step_num):
    ...         print("a steep place at step", step_num)

    It is asked at every opening, and a condition on a tensor makes Python wait for the device. Put a schedule above it,
    and it is asked only when that one has said yes: ``@every(100)`` over ``@when(...)``.

    Raises:
        HookError: it is no function.
    """
    if not callable(function) or isinstance(function, Schedule):
        raise _wrong("when", "function", function, "give a function of fixtures: @when(lambda loss: loss < .1)")
    return When(function)


def scheduled(extension: AnExtension, hook: str, *schedules: Schedule) -> AnExtension:
    """Give a hook of this one object a schedule, beside those that stand above it; its class stays as it is.

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
        extension: one that no Extensible has yet.
        hook: its method's name.
        schedules: all of them must let it run.

    Returns:
        The extension.

    Raises:
        HookError: there is no such hook, or it is too late.
    """
    _refuse_target(extension, hook)
    for schedule in schedules or (None,):
        if not isinstance(schedule, Schedule):
            what = f"{schedule!r:.60} is no schedule for {type(extension).__name__}.{hook}"
            raise HookError(what, name="scheduled", cure="give one, like every(50)")
    add_schedules(extension, hook, schedules)
    return extension


once: Final[Schedule] = Once()
"""Run at the first opening, and never again: neither in a second run, nor after a checkpoint.

>>> from train_manager import Extension, once
>>> class Shapes(Extension):
...     @once
...     def post_train_model_forward(self, inputs, prediction):
...         print(inputs.shape, prediction.shape)

With another schedule it is the first opening at which that one lets the hook run.
"""


def _wrong(name: str, argument: str, value: object, cure: str) -> HookError:
    return HookError(f"{name}: {argument} is {value!r:.60}", name=name, cure=cure)


def _refuse_target(extension: Extension, hook: str) -> None:
    """Refuse what is no hook of an extension, or of one whose plans are made.

    Raises:
        HookError: saying what there is.
    """
    label = type(extension).__name__
    if not isinstance(extension, Extension):
        cure = 'give an object: scheduled(LossCurves(), "post_eval", every(2))'
        raise _wrong("scheduled", "the extension", extension, cure)
    hooks = [name for name in method_names(extension) if name.startswith(_SIDES)]
    if hook not in hooks:
        cure = did_you_mean(near(str(hook), hooks)) or f"its hooks: {', '.join(hooks) or 'none'}"
        raise HookError(f"scheduled: {label} has no hook {hook!r:.60}", name=str(hook), cure=cure)
    if is_serving(extension):
        cure = "schedule its hooks before you add it"
        raise HookError(f"scheduled: this {label} is an extension of an extensible already", name=hook, cure=cure)
