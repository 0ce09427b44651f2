"""The arguments that a class is made with: what is said about those that do not fit."""

from __future__ import annotations

import copy
import pickle
from collections import namedtuple
from collections.abc import Callable
from functools import wraps
from typing import Any

import pytest
from torch.optim.lr_scheduler import StepLR

from train_manager import Extension, InputError
from train_manager.errors import ArgumentError
from train_manager.extensions import EMA, LRSchedule
from train_manager.telling.argument_names import named_arguments, refuse_unfitting


class Nothing(Extension):
    """Takes no arguments."""


class Slow(Extension):
    def __init__(self, seconds: float, *, times: int = 1) -> None:
        self.seconds, self.times = seconds, times


class Rest(Extension):
    def __init__(self, *names: str, **options: Any) -> None:
        self.names, self.options = names, options


class Keeps(dict[str, int], Extension):
    """Has a base that is made with arguments, too."""


class Job:
    @named_arguments({"size": "amount", "speed": "give it to the engine: Engine(speed=...)"})
    def __init__(self, *, amount: int, name: str = "") -> None:
        if amount < 0:
            raise ValueError(amount)
        self.amount, self.name = amount, name


class Named(Job):
    def __init__(self, **options: Any) -> None:
        super().__init__(**options)


def refusal(make: Callable[..., object], *args: Any, **kwargs: Any) -> str:
    with pytest.raises(ArgumentError) as caught:
        make(*args, **kwargs)
    return str(caught.value)


def test_a_misspelt_argument_is_told_the_right_one() -> None:
    assert refusal(Slow, 1.0, tims=2) == "Slow has no argument 'tims'\n  did you mean 'times'?"


def test_an_argument_like_no_other_is_told_all_of_them() -> None:
    assert refusal(Slow, 1.0, colour=2) == "Slow has no argument 'colour'\n  its arguments are seconds, times"


def test_a_class_without_an_init_takes_nothing() -> None:
    assert refusal(Nothing, 3) == "Nothing takes no arguments, but was given 1\n  Nothing()"
    assert refusal(Nothing, size=3) == "Nothing has no argument 'size'\n  it takes none"


def test_too_many_arguments_are_told_which_are_keywords() -> None:
    assert refusal(Slow, 1.0, 2) == ("Slow takes 1 argument without a keyword, but got 2\n  Slow(seconds, times=...)")


def test_a_missing_argument_is_named() -> None:
    assert refusal(Slow, times=2) == "Slow needs the argument 'seconds'\n  Slow(seconds=...)"


def test_all_unknown_arguments_are_told_at_once() -> None:
    assert refusal(Job, size=3, nam="x", speed=1, colour=2) == (
        "Job has no arguments 'size', 'nam', 'speed' and 'colour'\n"
        "  size: it is called 'amount' here\n"
        "  nam: did you mean 'name'?\n"
        "  speed: give it to the engine: Engine(speed=...)\n"
        "  its arguments are amount, name"
    )


def test_an_init_with_keywords_only_says_so() -> None:
    assert refusal(Job, 3) == "all arguments of Job are keywords, but 1 was given without\n  Job(amount=...)"


def test_a_subclass_that_hands_its_keywords_on_is_told_under_its_own_name() -> None:
    assert refusal(Named, size=3) == "Named has no argument 'size'\n  it is called 'amount' here"


def test_an_argument_that_another_class_has_here_names_this_class() -> None:
    said = "an extension of its own warms up, beside any schedule: extensions=[WarmUp(steps=...)]"

    assert refusal(LRSchedule, StepLR, warmup=5).splitlines()[1:] == [f"  {said}"]
    assert "did you mean 'warm_up'?" in refusal(EMA, warmup=True)


def test_arguments_that_fit_are_handed_on() -> None:
    assert (Slow(2.0, times=3).times, Job(amount=2, name="a").name) == (3, "a")
    assert Rest("a", "b", c=1).options == {"c": 1}
    assert Keeps(a=1) == {"a": 1}


def test_the_error_is_both_of_the_types_that_a_caller_may_expect() -> None:
    for kind in (TypeError, ValueError, InputError):
        with pytest.raises(kind):
            Slow(1.0, tims=2)  # type: ignore[call-arg]


def test_an_error_of_the_init_comes_out_as_it_is() -> None:
    with pytest.raises(ValueError, match="-1"):
        Job(amount=-1)


@pytest.mark.parametrize("made", [Slow(2.0, times=3), Rest("a", c=1)])
def test_an_extension_with_arguments_is_copied_and_pickled(made: Extension) -> None:
    for other in (copy.copy(made), copy.deepcopy(made), pickle.loads(pickle.dumps(made))):
        assert vars(other) == vars(made)


def test_arguments_that_another_base_takes_as_it_is_made_are_let_through() -> None:
    class Point(Extension, namedtuple("Pair", ["x", "y"])): ...

    assert Point(1, y=2) == (1, 2)


def test_an_argument_that_a_decorator_of_the_init_takes_is_let_through() -> None:
    def with_log(init: Callable[..., None]) -> Callable[..., None]:
        @wraps(init)
        def logged(self: Extension, *args: Any, log: str = "", **kwargs: Any) -> None:
            init(self, *args, **kwargs)

        return logged

    class Mine(Extension):
        @with_log
        def __init__(self, size: int) -> None:
            self.size = size

    assert Mine(3, log="made").size == 3


def test_what_has_no_signature_is_let_through() -> None:
    refuse_unfitting("dict", dict.update, (1, 2, 3), {"a": 1})
