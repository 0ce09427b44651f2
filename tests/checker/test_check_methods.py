"""Which methods the check sees called, and where: inherited, decorated, handed on, nested, or calling themselves."""

from __future__ import annotations

import functools
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from tests.checker.checking import Loop, ask
from train_manager import Extensible, Extension
from train_manager.errors import CheckError


def test_a_comprehension_calls_methods() -> None:
    class Fits(Extensible):
        def fit(self) -> list[int]:
            with self.staged("fit", {"x": 1}):
                return [self.one() for _ in range(3) if not self.skipped()]

        def one(self) -> int:
            with self.staged("one"):
                return 1

        def skipped(self) -> bool:
            with self.staged("test"):
                return False

    assert Fits([ask("one", "x"), ask("test", "x")]).check() == []


def test_names_and_dicts_may_be_assigned_from_themselves() -> None:
    class Assigns(Extensible):
        def fit(self) -> None:
            numbers = list(range(3))
            numbers = sorted(numbers)
            given: dict[str, Any] = {"x": numbers}
            given = given | {"y": 1}
            with self.staged("fit", given):
                name = "x"
                name = name if numbers else "y"
                self.step(self.fixtures[name])

        def step(self, value: int) -> None:
            with self.staged("step"):
                pass

    assert Assigns([ask("step", "x", "y")]).check() == []


def test_inherited_and_overridden_methods_are_those_that_run() -> None:
    class Faster(Loop):
        def step(self, batch: int) -> None:
            with self.staged("fast", {"quick": batch}):
                super().step(batch)

    assert Faster([ask("forward", "quick", "batch", "epoch_num")]).check() == []


def test_super_calls_follow_the_order_of_the_classes() -> None:
    class Timed(Loop):
        def step(self, batch: int) -> None:
            with self.staged("timed", {"seconds": 1}):
                super().step(batch)

    class Counted(Loop):
        def step(self, batch: int) -> None:
            with self.staged("counted", {"count": 1}):
                super().step(batch)

    class Both(Timed, Counted):
        pass

    assert Both([ask("step", "seconds", "count")]).check() == []


def passing_on(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        return function(*args, **kwargs)

    return wrapper


def test_a_decorated_method_is_read_behind_its_decorator() -> None:
    class Fits(Extensible):
        def fit(self) -> None:
            with self.staged("fit", {"x": 1}):
                self.step()

        @passing_on
        @passing_on
        def step(self) -> None:
            with self.staged("step"):
                pass

    fits = Fits([ask("step", "x")])
    assert fits.check() == []
    fits.add_extension(ask("fit", "y"))
    with pytest.raises(CheckError):
        fits.check()


def test_a_property_is_a_method() -> None:
    class Fits(Extensible):
        @property
        def model(self) -> int:
            with self.staged("build"):
                return 1

        @functools.cached_property
        def data(self) -> int:
            with self.staged("load"):
                return 1

        def fit(self) -> None:
            with self.staged("fit", {"x": 1}):
                print(self.model, self.data)

    assert Fits([ask("build", "x"), ask("load", "x")]).check() == []


class Handing(Extensible):
    """Hands a method that opens a stage to other code, and another one that does not."""

    def fit(self, hand: Callable[..., Any]) -> None:
        with self.staged("fit", {"x": 1}):
            self.hand(hand)

    def hand(self, hand: Callable[..., Any]) -> None:
        raise NotImplementedError

    def one(self, number: int = 0) -> None:
        with self.staged("one"):
            pass

    def plain(self, number: int) -> int:
        return number


class Maps(Handing):
    def hand(self, hand: Callable[..., Any]) -> None:
        list(map(self.one, range(3)))


class Names(Handing):
    def hand(self, hand: Callable[..., Any]) -> None:
        one = self.one
        one()


class Keeps(Handing):
    def hand(self, hand: Callable[..., Any]) -> None:
        self.table = {"one": self.one}


class Partial(Handing):
    def hand(self, hand: Callable[..., Any]) -> None:
        hand(partial(self.one, 3))


@pytest.mark.parametrize("kind", [Maps, Names, Keeps, Partial])
def test_a_bound_method_that_opens_a_stage_may_be_called_anywhere_once_it_is_handed_on(kind: type[Handing]) -> None:
    (unknown,) = kind([ask("one", "x", "y")]).check()
    assert unknown.endswith("hands `self.one` on")


def test_a_bound_method_that_opens_no_stage_may_go_anywhere() -> None:
    class Plain(Handing):
        def hand(self, hand: Callable[..., Any]) -> None:
            hand(self.plain)
            self.chosen = self.plain
            self.one()

    assert Plain([ask("one", "x")]).check() == []


def test_a_mixin_that_is_no_extensible_is_read() -> None:
    class Steps:
        staged: Callable[..., Any]

        def step(self) -> None:
            with self.staged("step"):
                pass

    class Fits(Steps, Extensible):
        def fit(self) -> None:
            with self.staged("fit", {"x": 1}):
                self.step()

    assert Fits([ask("step", "x")]).check() == []


def test_a_function_inside_of_a_method_that_opens_a_stage_is_not_followed() -> None:
    class Fits(Extensible):
        def fit(self) -> None:
            def step() -> None:
                with self.staged("step"):
                    pass

            run = lambda: self.inner()  # noqa: E731
            with self.staged("fit", {"lr": 1}):
                step()
                run()  # type: ignore[no-untyped-call]

        def inner(self) -> None:
            with self.staged("inner"):
                pass

    unknown = Fits([Extension.of(post_step=lambda lr: None, post_inner=lambda lr: None)]).check()
    assert [line.rpartition(") ")[2] for line in unknown] == [
        "has a function that opens stages or defines fixtures"
    ] * 2


def test_a_function_inside_of_a_method_that_opens_no_stage_hides_nothing() -> None:
    class Fits(Extensible):
        def fit(self) -> None:
            with self.staged("fit", {"lr": 1}):
                sorted([1, 2], key=lambda number: self.plain(number))
                with self.staged("inner"):
                    pass

        def plain(self, number: int) -> int:
            return number

    assert Fits([ask("inner", "lr")]).check() == []


def test_a_method_that_calls_itself_is_a_root_all_the_same() -> None:
    class Fits(Extensible):
        def fit(self, depth: int) -> None:
            if depth:
                with self.staged("branch", {"x": 1}):
                    self.fit(depth - 1)
            else:
                with self.staged("leaf"):
                    pass

    assert Fits([ask("leaf", "x")]).check() == []


def test_methods_that_call_each_other_are_read() -> None:
    class Fits(Extensible):
        def even(self, number: int) -> None:
            with self.staged("even", {"x": 1}):
                self.odd(number - 1)

        def odd(self, number: int) -> None:
            with self.staged("odd", {"y": 1}):
                self.even(number - 1)

    fits = Fits([ask("even", "y"), ask("odd", "x")])
    assert fits.check() == []
    with pytest.raises(CheckError):
        Fits([ask("even", "z")]).check()


def test_what_is_alive_only_in_a_recursion_is_alive() -> None:
    class Fits(Extensible):
        def outer(self, again: bool) -> None:
            with self.staged("outer"):
                if again:
                    with self.staged("middle", {"x": 1}):
                        self.outer(False)
                else:
                    with self.staged("inner"):
                        pass

    assert Fits([ask("inner", "x")]).check() == []


def test_a_method_that_is_called_by_a_name_made_at_run_time_sees_what_is_alive_there() -> None:
    class Dispatching(Extensible):
        def fit(self, kind: str) -> None:
            with self.staged("fit", {"data": 1}):
                getattr(self, f"step_{kind}")()

        def step_a(self) -> None:
            with self.staged("a"):
                pass

    class Watcher(Extension):
        def pre_a(self, data: int) -> None: ...

    assert len(Dispatching([Watcher()]).check()) == 1
