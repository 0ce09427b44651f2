"""Schedules on hooks of plain Extensibles, with a stand-in for a manager that has only ``progress``.

Schedules of a TrainManager are tested in ``test_schedules_in_training.py``.
"""

from __future__ import annotations

import operator
from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.schedules.stepping import Clock, Stepper, Training, Watcher, ran_at, ran_in, ran_in_training, watching
from train_manager import (
    Extensible,
    Extension,
    SkipStage,
    at_most,
    every,
    exponentially,
    modifies,
    once,
    periodically,
    provides,
    scheduled,
    when,
)
from train_manager.errors import CheckError, FixtureNotFound, HookError
from train_manager.schedules.rules import CallProgress

# ---- every ---------------------------------------------------------------------------------------------------------


def test_every_third_opening_and_the_first_is_1_3_6() -> None:
    assert ran_in(7, every(3, first=True)) == [1, 3, 6]
    assert ran_in(3, every(1, first=True)) == [1, 2, 3]


def test_a_pre_hook_and_an_around_hook_count_as_a_post_hook_does() -> None:
    class AllKinds(Extension):
        def __init__(self) -> None:
            self.ran: list[tuple[str, int]] = []

        @every(2)
        def around_step(self, number: int) -> Iterator[None]:
            self.ran.append(("around", number))
            yield
            self.ran.append(("left", number))

        @every(2)
        def pre_step(self, number: int) -> None:
            self.ran.append(("pre", number))

        @every(2)
        def post_step(self, number: int) -> None:
            self.ran.append(("post", number))

    hooks = AllKinds()
    Stepper([hooks]).steps(1, 3)
    assert hooks.ran == [("around", 2), ("pre", 2), ("post", 2), ("left", 2)]


def test_an_opening_that_fails_is_counted() -> None:
    watcher, stepper = watching(every(2))
    with pytest.raises(ZeroDivisionError), stepper.staged("step", {"number": 1}):
        raise ZeroDivisionError
    stepper.step(2)
    assert watcher.ran == [2]


def test_if_a_stage_nests_in_itself_the_outer_one_keeps_its_number() -> None:
    watcher, stepper = watching(every(2))
    with stepper.staged("step", {"number": 1}):
        stepper.step(2)
    assert watcher.ran == [2]


def test_a_hook_of_every_stage_counts_the_openings_of_all() -> None:
    class Names(Extension):
        def __init__(self) -> None:
            self.ran: list[str] = []

        @every(2)
        def post_stage(self, stage: Any) -> None:
            self.ran.append(stage.name)

    names = Names()
    extensible = Extensible([names])
    with extensible.staged("a"):
        with extensible.staged("b"):
            with extensible.staged("c"):
                pass
        with extensible.staged("d"):
            pass
    assert names.ran == ["b", "d"]


def test_each_object_of_a_class_counts_by_itself() -> None:
    class Second(Watcher):
        @every(2)
        def post_step(self, number: int) -> None:
            self.ran.append(number)

    first, second = Second(), Second()
    Stepper([first]).steps(1, 1)
    Stepper([second]).steps(1, 2)
    assert (first.ran, second.ran) == ([], [2])


def test_an_extensibles_own_hook_may_have_a_schedule() -> None:
    class Own(Stepper):
        ran = 0

        @every(2)
        def post_step(self) -> None:
            self.ran += 1

    own = Own()
    own.steps(1, 5)
    assert own.ran == 2


# ---- at_most -------------------------------------------------------------------------------------------------------


@given(n=st.integers(1, 60), steps=st.integers(1, 60))
def test_at_most_runs_exactly_n_times_evenly_and_at_the_last_step(n: int, steps: int) -> None:
    ran = ran_in_training(at_most(n), steps)
    gaps = [late - early for early, late in zip([0, *ran], ran, strict=False)]
    assert len(ran) == min(n, steps)
    assert ran[-1] == steps
    assert max(gaps) - min(gaps) <= 1


@given(n=st.integers(1, 30), steps=st.lists(st.integers(1, 60), min_size=2, max_size=3))
def test_at_most_is_even_again_in_a_second_run(n: int, steps: list[int]) -> None:
    watcher, stepper = watching(at_most(n))
    for run, of_run in enumerate(steps):
        stepper.train(of_run, run=run)
    assert watcher.ran == [number for of_run in steps for number in ran_in_training(at_most(n), of_run)]


def test_while_the_end_is_unknown_it_is_1_2_4_8_and_then_the_rest_is_spread_evenly() -> None:
    assert ran_in_training(at_most(6), 48, known_from=17) == [1, 2, 4, 8, 16, 48]
    assert ran_in_training(at_most(8), 46, known_from=17) == [1, 2, 4, 8, 16, 26, 36, 46]


@given(n=st.integers(1, 30), steps=st.integers(1, 60), known=st.integers(1, 61))
def test_with_an_end_that_is_known_late_at_most_runs_at_the_last_step_and_at_most_once_more(
    n: int, steps: int, known: int
) -> None:
    ran = ran_in_training(at_most(n), steps, known_from=known)
    assert ran[-1] == steps
    assert len(ran) <= n + 1


def test_an_end_that_was_estimated_too_near_does_not_make_it_run_at_each_step() -> None:
    watcher, stepper = watching(at_most(2))
    for done in range(1, 41):
        progress = CallProgress(1, done, 20 if done < 40 else 40, ends=partial(operator.eq, done, 40))
        stepper.step(done, train_manager=Training(progress))
    assert watcher.ran == [10, 20, 40]


def test_at_most_runs_at_the_last_step_of_a_run_that_is_stopped() -> None:
    assert ran_in_training(at_most(2), 100, stop_at=60) == [50, 60]


def test_at_most_runs_once_if_the_stage_opens_twice_in_a_step() -> None:
    watcher, stepper = watching(at_most(1))
    stepper.step(1, train_manager=Training(CallProgress(1, 1, 1, ends=lambda: True)))
    stepper.step(2, train_manager=Training(CallProgress(1, 1, 1, ends=lambda: True)))
    assert watcher.ran == [1]


def test_at_most_puts_off_a_step_that_another_schedule_refuses() -> None:
    watcher, stepper = watching(at_most(2), when(lambda number: number % 4 == 0))
    stepper.train(12)
    assert watcher.ran == [8, 12]


def test_at_most_without_a_train_manager_is_refused_when_its_stage_opens() -> None:
    with pytest.raises(HookError) as caught:
        ran_in(1, at_most(5))
    assert str(caught.value) == (
        "@at_most(5) must know when the training ends, but there is no TrainManager\n"
        "  add the extension to a TrainManager, or use a schedule that needs no end: @every(50)"
    )
    assert caught.value.__notes__ == ["in hook Watcher.post_step of extension 'watcher', at stage step"]


# ---- exponentially -------------------------------------------------------------------------------------------------


def test_exponentially_by_one_is_every_start() -> None:
    assert ran_in(10, exponentially(3, 1)) == [3, 6, 9]


def test_a_factor_beyond_all_numbers_ends_it() -> None:
    assert ran_in(5, exponentially(2, 1e308)) == [2]


@pytest.mark.parametrize(("steps", "ran"), [(5, [2, 5]), (6, [2, 6]), (7, [2, 6, 7])])
def test_at_the_end_it_runs_once_also_if_it_would_run_anyway(steps: int, ran: list[int]) -> None:
    assert ran_in_training(exponentially(2, 2, at_end=True), steps) == ran


def test_at_the_end_it_runs_once_if_the_stage_opens_twice_in_the_last_step() -> None:
    watcher, stepper = watching(exponentially(2, 2, at_end=True))
    for number in (1, 2, 3):
        stepper.step(number, train_manager=Training(CallProgress(1, 1, 1, ends=lambda: True)))
    assert watcher.ran == [1]


def test_each_run_has_an_end() -> None:
    watcher, stepper = watching(exponentially(100, 2, at_end=True))
    stepper.train(3, run=1)
    stepper.train(4, run=2)
    assert watcher.ran == [3, 4]


def test_at_end_without_a_train_manager_is_refused_when_its_stage_opens() -> None:
    with pytest.raises(HookError, match=r"^@exponentially\(2, 2\.0, at_end=True\) must know when the training ends"):
        ran_in(1, exponentially(2, 2, at_end=True))


# ---- periodically --------------------------------------------------------------------------------------------------


def test_the_time_that_the_hook_takes_does_not_count() -> None:
    class Slow(Watcher):
        def post_step(self, number: int) -> None:
            super().post_step(number)
            clock.now += 100

    clock = Clock()
    slow = scheduled(Slow(), "post_step", periodically(10, clock=clock))
    ran_at(clock, Stepper([slow]), [0, 10, 111, 119, 120])
    assert slow.ran == [10, 120]


def test_the_time_of_an_around_hook_does_not_count_up_to_its_end() -> None:
    class Slow(Extension):
        def __init__(self) -> None:
            self.ran: list[int] = []

        def around_step(self, number: int) -> Iterator[None]:
            self.ran.append(number)
            yield
            clock.now += 100

    clock = Clock()
    slow = scheduled(Slow(), "around_step", periodically(10, clock=clock))
    ran_at(clock, Stepper([slow]), [0, 10, 111, 119, 120])
    assert slow.ran == [10, 120]


def test_the_time_between_two_runs_does_not_count() -> None:
    clock = Clock()
    watcher, stepper = watching(periodically(10, clock=clock))
    ran_at(clock, stepper, [0, 7], run=1)
    ran_at(clock, stepper, [1000, 1002, 1003], run=2)
    assert watcher.ran == [1003]


def test_the_time_between_two_runs_does_not_count_also_if_another_schedule_refuses_the_first_opening() -> None:
    clock = Clock()
    watcher, stepper = watching(when(lambda number: number not in (1000, 1001)), periodically(10, clock=clock))
    ran_at(clock, stepper, [0, 7], run=1)
    ran_at(clock, stepper, [1000, 1001, 1002, 1003], run=2)
    assert watcher.ran == [1003]


# ---- once and when -------------------------------------------------------------------------------------------------


def test_once_with_another_schedule_is_the_first_opening_that_this_one_allows() -> None:
    assert ran_in(9, once, every(3)) == [3]
    assert ran_in(9, every(3), once) == [3]


def test_a_hook_that_has_run_into_an_error_has_run() -> None:
    class Skipping(Watcher):
        @once
        def pre_step(self) -> None:
            raise SkipStage

    skipping = Skipping()
    stepper = Stepper([skipping])
    for number in (1, 2):
        try:
            stepper.step(number)
        except SkipStage:
            skipping.ran.append(-number)
    assert skipping.ran == [-1, 2]


def test_when_calls_a_function_of_fixtures() -> None:
    assert ran_in(5, when(lambda number: number in (2, 5))) == [2, 5]


def test_a_function_of_when_uses_its_defaults() -> None:
    assert ran_in(3, when(lambda number, absent=2: number == absent)) == [2]


def test_an_unknown_fixture_that_a_function_of_when_names_is_an_error() -> None:
    with pytest.raises(FixtureNotFound, match=r"^the schedule of Watcher\.post_step wants 'nmber'"):
        ran_in(1, when(lambda nmber: nmber > 1))


def test_a_fixture_that_is_never_alive_is_found_before_the_first_stage() -> None:
    class Once(Extensible):
        def step(self) -> None:
            with self.staged("step", {"number": 1}):
                pass

    stepper = Once([scheduled(Watcher(), "post_step", when(lambda loss: loss > 1))])
    with pytest.raises(CheckError, match=r"the schedule of Watcher\.post_step wants 'loss', which is never alive"):
        stepper.check()


def test_a_hook_of_every_stage_does_not_run_if_a_fixture_of_its_condition_is_not_alive() -> None:
    names: list[str] = []

    class Names(Extension):
        @when(lambda number: number > 1)
        def pre_stage(self, stage: Any) -> None:
            names.append(stage.name)

    extensible = Extensible([Names()])
    with extensible.staged("a"), extensible.staged("b", {"number": 2}):
        pass
    assert names == ["b"]


# ---- several, and writes -------------------------------------------------------------------------------------------


@given(first=st.integers(1, 5), second=st.integers(1, 5))
def test_a_hook_with_two_schedules_runs_if_both_allow_it(first: int, second: int) -> None:
    both = sorted({*ran_in(30, every(first))} & {*ran_in(30, every(second))})
    assert ran_in(30, every(first), every(second)) == both


def test_a_condition_is_not_called_if_the_schedule_above_it_has_refused() -> None:
    asked: list[int] = []

    class Watching(Extension):
        @every(2)
        @when(lambda number: asked.append(number))
        def post_step(self) -> None: ...

    Stepper([Watching()]).steps(1, 5)
    assert asked == [2, 4]


def test_a_hook_that_does_not_run_leaves_the_fixture_that_it_modifies_alone() -> None:
    class Doubled(Extension):
        @every(2)
        @modifies("number")
        def pre_step(self, number: int) -> int:
            return 10 * number

    watcher = Watcher()
    Stepper([Doubled(), watcher]).steps(1, 3)
    assert watcher.ran == [1, 20, 3]


def test_a_hook_that_does_not_run_provides_nothing() -> None:
    class Squared(Extension):
        @every(2)
        @provides("square")
        def pre_step(self, number: int) -> int:
            return number**2

    squares: list[Any] = []
    Stepper([Squared(), Extension.of(post_step=lambda square=None: squares.append(square))]).steps(1, 3)
    assert squares == [None, 4, None]


# ---- on one object -------------------------------------------------------------------------------------------------


def test_a_schedule_of_one_object_leaves_its_class_alone() -> None:
    seldom, plain = scheduled(Watcher(), "post_step", every(2)), Watcher()
    Stepper([seldom, plain]).steps(1, 3)
    assert (seldom.ran, plain.ran) == ([2], [1, 2, 3])


def test_each_object_of_one_schedule_has_its_own_count_and_end() -> None:
    seldom = exponentially(3, 2, at_end=True)
    watchers = [scheduled(Watcher(), "post_step", seldom) for _ in range(2)]
    for watcher in watchers:
        Stepper([watcher]).train(5)
    assert [watcher.ran for watcher in watchers] == [[3, 5], [3, 5]]


def test_the_hook_of_one_object_does_not_run_because_another_objects_does() -> None:
    second = every(2)
    (first, outer), (other, inner) = watching(second), watching(second)
    inner.step(1)
    with outer.staged("step", {"number": 1}):
        inner.step(2)
    assert (first.ran, other.ran) == ([], [2])


def test_a_schedule_of_one_object_joins_that_of_its_class() -> None:
    class Second(Watcher):
        @every(2)
        def post_step(self, number: int) -> None:
            self.ran.append(number)

    sixth = scheduled(Second(), "post_step", every(3))
    Stepper([sixth]).steps(1, 12)
    assert sixth.ran == [6, 12]


def test_counts_continue_if_an_extension_is_removed_and_added_again() -> None:
    watcher, stepper = watching(every(3))
    stepper.steps(1, 2)
    stepper.remove_extension("watcher")
    stepper.add_extension(watcher)
    stepper.step(3)
    assert watcher.ran == [3]
