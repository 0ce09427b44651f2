"""What schedules refuse, with the cure, and how they are shown."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.schedules.stepping import Stepper, Watcher
from train_manager import (
    Extension,
    at_most,
    every,
    exponentially,
    fixture,
    once,
    periodically,
    scheduled,
    when,
)
from train_manager.errors import HookError


def refused(make: Callable[[], Any]) -> str:
    with pytest.raises(HookError) as caught:
        make()
    return str(caught.value)


wrong: Any = "wrong"


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: every(0), "every's n must be a whole number of at least 1, but is 0\n  write @every(50)"),
        (lambda: every(True), "every's n must be a whole number of at least 1, but is True\n  write @every(50)"),
        (lambda: at_most(-1), "at_most's n must be a whole number of at least 1, but is -1\n  write @at_most(10)"),
        (
            lambda: exponentially(0, 2),
            "exponentially's start must be a whole number of at least 1, but is 0",
        ),
        (
            lambda: exponentially(100, 0.5),
            "exponentially's factor must be a number of at least 1, but is 0.5",
        ),
        (
            lambda: exponentially(100, float("nan")),
            "exponentially's factor must be a number of at least 1, but is nan",
        ),
        (
            lambda: periodically(0),
            "periodically's seconds must be a number above 0, but is 0\n  write @periodically(60)",
        ),
        (
            lambda: periodically(1, clock=wrong),
            "periodically's clock must be a function, but is 'wrong'\n"
            "  give a function that tells the time: clock=time.monotonic",
        ),
        (
            lambda: when(wrong),
            "when's argument must be a function, but is 'wrong'\n"
            "  give a function of fixtures: @when(lambda loss: loss < .1)",
        ),
        (
            lambda: when(every(2)),
            "when's argument must be a function, but is every(2)\n"
            "  give a function of fixtures: @when(lambda loss: loss < .1)",
        ),
        (
            lambda: once(),  # type: ignore[call-arg]
            "once is a decorator without brackets, but was called\n  write @once",
        ),
        (
            lambda: every(2)(wrong),
            "@every(2) was given 'wrong', which is not a hook\n"
            "  write it above a method pre_<stage>, post_<stage> or around_<stage>",
        ),
        (
            lambda: scheduled(wrong, "post_step", every(2)),
            "scheduled's extension must be an Extension, but is 'wrong'\n"
            '  give an object: scheduled(LossCurves(), "post_eval", every(2))',
        ),
        (
            lambda: scheduled(Watcher(), "post_stp", every(2)),
            "Watcher has no hook 'post_stp' to schedule\n  did you mean 'post_step'?",
        ),
        (
            lambda: scheduled(Watcher(), "ran", every(2)),
            "Watcher has no hook 'ran' to schedule\n  its hooks: post_step",
        ),
        (
            lambda: scheduled(Watcher(), "post_step"),
            "the schedule of Watcher.post_step must be a Schedule, but is None\n  give one, such as every(50)",
        ),
        (
            lambda: scheduled(Watcher(), "post_step", wrong),
            "the schedule of Watcher.post_step must be a Schedule, but is 'wrong'\n  give one, such as every(50)",
        ),
    ],
)
def test_an_invalid_argument_is_refused_with_the_cure(make: Callable[[], Any], message: str) -> None:
    assert refused(make) == message


def test_whether_every_begins_with_the_first_opening_must_be_a_bool() -> None:
    assert refused(lambda: every(3, first=1)) == (  # type: ignore[arg-type]
        "every's first must be True or False, but is 1\n  write @every(50, first=True)"
    )


def test_every_without_its_number_is_refused() -> None:
    def forgotten() -> None:
        class Forgotten(Extension):
            @every  # type: ignore[arg-type]
            def post_step(self) -> None: ...

    text = refused(forgotten)
    assert text.startswith("every's n must be a whole number of at least 1, but is <function ")
    assert text.endswith("\n  write @every(50)")


def test_a_method_of_one_object_is_refused_with_what_to_write() -> None:
    assert refused(lambda: every(2)(Watcher().post_step)).endswith(
        'which is not a hook\n  to schedule a hook of one object, write scheduled(extension, "post_step", every(2))'
    )


def test_an_extension_that_was_added_cannot_be_scheduled() -> None:
    watcher = Watcher()
    stepper = Stepper([watcher])
    assert refused(lambda: scheduled(watcher, "post_step", every(2))) == (
        "Watcher.post_step cannot be scheduled: the extension was added already\n  schedule its hooks before you add it"
    )
    stepper.remove_extension("watcher")
    scheduled(watcher, "post_step", every(2))


def test_a_schedule_on_a_fixture_is_refused() -> None:
    class Areas(Extension):
        @every(2)
        @fixture("step")
        def area(self, number: int) -> int:
            return number**2

    text = refused(lambda: Stepper([Areas()]))
    assert text.startswith("Areas.area has a schedule, but is a @fixture, not a hook\n")
    assert text.endswith("\n  remove the schedule: a fixture is computed when it is first asked for")


def test_a_schedule_on_a_method_that_is_not_a_hook_is_refused() -> None:
    class Helping(Extension):
        @every(2)
        def helper(self) -> None: ...

    text = refused(lambda: Stepper([Helping()]))
    assert text.startswith("Helping.helper is declared as a hook, but does not have the name of a hook\n")
    assert text.endswith("\n  hooks are called pre_<stage>, post_<stage> or around_<stage>")


def test_schedules_are_shown_as_they_are_written() -> None:
    counted = [every(2), every(2, first=True), every(2, of="update")]
    shown = [*counted, at_most(3), exponentially(100, 1.2, at_end=True), periodically(1.5, at_end=True), once]
    assert list(map(str, shown)) == [
        "every(2)",
        "every(2, first=True)",
        "every(2, of='update')",
        "at_most(3)",
        "exponentially(100, 1.2, at_end=True)",
        "periodically(1.5, at_end=True)",
        "once",
    ]
