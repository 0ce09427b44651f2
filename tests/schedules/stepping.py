"""Hooks of plain Extensibles with schedules, with a stand-in for a manager that has only ``progress``."""

from __future__ import annotations

import operator
from dataclasses import dataclass
from functools import partial
from typing import Any

from train_manager import (
    Extensible,
    Extension,
    scheduled,
)
from train_manager.core.schedule import Schedule
from train_manager.schedules.rules import CallProgress


@dataclass
class Training:
    """A manager as schedules read it."""

    progress: CallProgress
    resumed_stages: frozenset[str] = frozenset()


class Clock:
    """A clock whose time the test sets."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


class Watcher(Extension):
    """Records the numbers at which its hook ran."""

    def __init__(self) -> None:
        self.ran: list[int] = []

    def post_step(self, number: int) -> None:
        self.ran.append(number)


class Stepper(Extensible):
    def step(self, number: int, **fixtures: Any) -> None:
        with self.staged("step", {"number": number, **fixtures}):
            pass

    def steps(self, first: int, last: int) -> None:
        for number in range(first, last + 1):
            self.step(number)

    def train(self, steps: int, run: int = 1, first: int = 1, stop_at: int = 0, known_from: int = 0) -> None:
        """Do a training call of some steps, whose end is known from the step ``known_from`` on."""
        for done in range(first, (stop_at or steps) + 1):
            total = steps if done >= known_from else None
            progress = CallProgress(run, done, total, ends=partial(operator.contains, (steps, stop_at), done))
            self.step(done, train_manager=Training(progress))


def watching(*schedules: Schedule) -> tuple[Watcher, Stepper]:
    watcher = scheduled(Watcher(), "post_step", *schedules)
    return watcher, Stepper([watcher])


def ran_in(steps: int, *schedules: Schedule) -> list[int]:
    """Return the openings, out of ``steps``, at which a hook runs."""
    watcher, stepper = watching(*schedules)
    stepper.steps(1, steps)
    return watcher.ran


def ran_in_training(schedule: Schedule, steps: int, **options: int) -> list[int]:
    watcher, stepper = watching(schedule)
    stepper.train(steps, **options)
    return watcher.ran


def ran_at(clock: Clock, stepper: Stepper, times: list[float], run: int = 1) -> None:
    for time in times:
        clock.now = time
        stepper.step(int(time), train_manager=Training(CallProgress(run, 1, None, ends=lambda: False)))
