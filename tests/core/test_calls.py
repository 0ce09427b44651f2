"""How many calls a stage takes: what it costs, without a clock."""

from __future__ import annotations

import asyncio
import sys
from collections import Counter
from types import FrameType
from typing import Any

import pytest

from train_manager import Extensible, Extension


class Subscriber(Extension):
    def pre_step(self, x: int) -> None: ...

    def post_step(self, x: int) -> None: ...


class Unused(Extension):
    def pre_other(self) -> None: ...

    def post_other(self) -> None: ...


class Stepper(Extensible):
    def step(self, x: int, depth: int = 0) -> None:
        with self.staged("step", {"x": x}):
            pass

    def other(self) -> None:
        with self.staged("other"):
            pass

    def write(self) -> None:
        self.fixtures["y"] = 1


def calls_of(function: Any, *args: Any) -> tuple[int, int]:
    """Python and C functions that are called by this one, itself left out."""
    count: Counter[str] = Counter()

    def profile(frame: FrameType, event: str, called: Any) -> None:
        if called is not sys.setprofile:
            count[event] += 1

    asyncio.iscoroutinefunction(function)  # asyncio is there, as wherever torch is
    function(*args)  # what is made at the first time is made now
    sys.setprofile(profile)
    try:
        function(*args)
    finally:
        sys.setprofile(None)
    return count["call"] - 1, count["c_call"]


@pytest.mark.parametrize("subscribers", [0, 1, 5, 20])
def test_a_stage_takes_at_most_five_python_calls_and_three_c_calls_and_with_hooks_two_and_one_more(
    subscribers: int,
) -> None:
    stepper = Stepper([Subscriber() for _ in range(subscribers)])
    python, c = calls_of(stepper.step, 1)
    assert python <= 5 + 2 * (subscribers > 0) + 2 * subscribers
    assert c <= 3 + (subscribers > 0)


def test_extensions_without_a_hook_in_it_add_no_call_to_a_stage() -> None:
    assert calls_of(Stepper([Unused() for _ in range(20)]).step, 1) == calls_of(Stepper().step, 1)


def test_depth_adds_no_call() -> None:
    stepper, counts = Stepper(), []
    for depth in (1, 50):
        stages = [stepper.staged(f"around_{number}") for number in range(depth)]
        for stage in stages:
            stage.__enter__()
        counts.append(calls_of(stepper.step, 1))
        for stage in reversed(stages):
            stage.__exit__(None, None, None)
    assert counts[0] == counts[1]


def test_live_fixtures_add_no_call() -> None:
    stepper, counts = Stepper(), []
    for live in (10, 10_000):
        with stepper.staged("around", {f"fixture_{number}": number for number in range(live)}):
            counts.append(calls_of(stepper.step, 1))
    assert counts[0] == counts[1]
