"""Schedules that continue from a state."""

from __future__ import annotations

import json
import operator
from collections.abc import Callable
from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.schedules.stepping import Clock, Stepper, Training, Watcher, ran_at, ran_in_training, watching
from train_manager import (
    at_most,
    every,
    exponentially,
    once,
    periodically,
    scheduled,
    when,
)
from train_manager.core.schedule import Schedule
from train_manager.schedules.rules import CallProgress

SCHEDULES: dict[str, Callable[[], Schedule]] = {
    "every": lambda: every(3),
    "at_most": lambda: at_most(4),
    "exponentially": lambda: exponentially(2, 1.5),
    "exponentially at the end": lambda: exponentially(3, 1.1, at_end=True),
    "once": lambda: once,
    "when": lambda: when(lambda number: number % 5 == 0),
}


@pytest.mark.parametrize("name", SCHEDULES)
@given(steps=st.integers(1, 40), saved=st.integers(0, 40))
def test_a_schedule_that_resumes_from_a_state_runs_as_if_nothing_had_happened(
    name: str, steps: int, saved: int
) -> None:
    whole = ran_in_training(SCHEDULES[name](), steps)
    first, before = watching(SCHEDULES[name]())
    saved = min(saved, steps)
    for done in range(1, saved + 1):
        before.step(done, train_manager=Training(CallProgress(1, done, steps, ends=partial(operator.eq, done, steps))))

    second = scheduled(Watcher(), "post_step", SCHEDULES[name]())
    second.load_state_dict(json.loads(json.dumps(first.state_dict())))
    Stepper([second]).train(steps, run=2, first=saved + 1)

    assert first.ran + second.ran == whole


def test_a_stage_that_a_resumed_run_opens_again_is_counted_once() -> None:
    first, before = watching(every(2))
    before.step(1)
    second, after = watching(every(2))
    second.load_state_dict(first.state_dict())
    progress = CallProgress(1, 1, None, ends=lambda: False)
    after.step(1, train_manager=Training(progress, resumed_stages=frozenset({"step"})))
    after.step(2)

    assert second.ran == [2]


def test_a_time_resumes_from_a_state_without_what_has_passed_between() -> None:
    clock, later = Clock(), Clock()
    first, before = watching(periodically(10, clock=clock))
    ran_at(clock, before, [100, 107])

    second, after = watching(periodically(10, clock=later))
    second.load_state_dict(json.loads(json.dumps(first.state_dict())))
    ran_at(later, after, [5, 7, 8])

    assert second.ran == [8]


def test_a_state_may_be_loaded_before_the_extension_is_added() -> None:
    class Third(Watcher):
        @every(3)
        def post_step(self, number: int) -> None:
            self.ran.append(number)

    first, second = Third(), Third()
    Stepper([first]).steps(1, 2)
    second.load_state_dict(first.state_dict())
    Stepper([second]).steps(3, 3)
    assert second.ran == [3]


def test_a_state_brings_the_counts_and_not_the_arguments() -> None:
    first, before = watching(every(3))
    before.steps(1, 2)
    second, after = watching(every(4))
    second.load_state_dict(first.state_dict())
    after.steps(3, 8)
    assert second.ran == [4, 8]


def test_a_state_of_a_hook_that_is_gone_is_left_out() -> None:
    watcher, stepper = watching(every(2))
    watcher.load_state_dict({"schedules": {"pre_gone": [{"count": 1}], "post_step": [{"count": 1, "gone": 2}]}})
    stepper.step(1)
    assert watcher.ran == [1]


def test_the_state_of_an_extension_without_schedules_is_empty() -> None:
    assert Watcher().state_dict() == {}
