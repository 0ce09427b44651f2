"""Code that the check cannot follow, which it says and passes over, and code that it need not follow."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.checker.checking import Loop, ask
from train_manager import Extensible
from train_manager.errors import CheckError


def in_stage(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def wrapper(self: Any) -> Any:
        with self.staged("decorated", {"given": 1}):
            return function(self)

    return wrapper


def test_a_decorator_that_opens_a_stage_is_not_known() -> None:
    class Fits(Extensible):
        @in_stage
        def fit(self) -> None:
            with self.staged("fit"):
                pass

    (unknown,) = Fits([ask("fit", "given"), ask("decorated", "given")]).check()
    assert unknown.endswith("Fits.fit has a decorator that opens stages or writes fixtures")


def without_wraps(function: Callable[..., Any]) -> Callable[..., Any]:
    def wrapper(*args: Any) -> Any:
        return function(*args)

    return wrapper


def test_a_method_behind_a_decorator_without_wraps_is_not_known() -> None:
    class Fits(Extensible):
        @without_wraps
        def fit(self) -> None:
            with self.staged("fit", {"x": 1}):
                pass

    (unknown,) = Fits([ask("fit", "x")]).check()
    assert unknown.endswith("hands `args` on")


def test_the_fixtures_under_another_name_are_not_followed() -> None:
    class Fits(Extensible):
        def fit(self) -> None:
            with self.staged("fit"):
                alive = self.fixtures
                alive["a"] = 1
                with self.staged("inner"):
                    pass

    (unknown,) = Fits([ask("inner", "a")]).check()
    assert unknown.endswith("gives `fixtures` another name")


def test_a_class_without_source_is_said_and_passed_over() -> None:
    scope = {"Extensible": Extensible, "__name__": "made"}
    exec("class Fits(Extensible):\n    def fit(self):\n        with self.staged('fit'): pass", scope)
    fits: Any = scope["Fits"]
    assert fits([ask("fit", "x"), ask("nothing", "x")]).check() == ["Fits.fit has no source to read"]


def test_methods_that_a_dataclass_writes_are_no_unknown_code() -> None:
    scope = {"Extensible": Extensible, "__name__": "made"}
    exec("def __repr__(self): return 'fits %s' % self.size", scope)
    fits = type("Fits", (Loop,), {"__repr__": scope["__repr__"]})
    assert fits([ask("step", "batch")]).check() == []


def test_code_that_gets_the_object_may_do_anything() -> None:
    class Fits(Extensible):
        def fit(self, helper: Callable[..., None]) -> None:
            with self.staged("fit"):
                helper(self)
                with self.staged("inner"):
                    pass

    (unknown,) = Fits([ask("inner", "x"), ask("unknown")]).check()
    assert unknown.endswith("hands `self` to `helper`")


def test_a_generator_that_is_advanced_with_next_is_not_followed() -> None:
    class Fits(Extensible):
        def fit(self) -> None:
            next(self.batches())

        def batches(self) -> Iterator[None]:
            with self.staged("source"):
                yield

    (unknown,) = Fits([ask("unknown")]).check()
    assert unknown.endswith("is a generator, and opens stages or defines fixtures")


def test_an_object_that_is_its_own_context_manager_is_not_followed() -> None:
    class Fits(Extensible):
        def fit(self) -> None:
            with self:
                pass

        def __enter__(self) -> None: ...

        def __exit__(self, *exception: object) -> None: ...

    (unknown,) = Fits([ask("unknown")]).check()
    assert unknown.endswith("hands `self` on")


def test_a_fixture_of_a_stage_whose_name_is_made_at_run_time_is_said_and_passed_over() -> None:
    class Fits(Extensible):
        def fit(self, name: str) -> None:
            with self.staged("fit"), self.staged("inner"):
                self.fixtures.define("x", 1, stage=name)

    (unknown,) = Fits([ask("unknown")]).check()
    assert unknown.endswith("defines a fixture in a stage whose name is made at run time")


def test_a_builtin_that_gets_the_object_does_nothing() -> None:
    class Fits(Extensible):
        def fit(self) -> None:
            with self.staged("fit"):
                print(self, isinstance(self, Loop))

    with pytest.raises(CheckError):
        Fits([ask("unknown")]).check()


class Renames(Extensible):
    """Writes by a method of the fixtures under another name."""

    def fit(self) -> None:
        with self.staged("fit"):
            define = self.fixtures.define
            define("x", 1)
            with self.staged("inner"):
                pass


class SetsItem(Extensible):
    """Writes by a method that stands for an operator."""

    def fit(self) -> None:
        with self.staged("fit"):
            self.fixtures.__setitem__("x", 1)
            with self.staged("inner"):
                pass


@pytest.mark.parametrize(
    ("kind", "does"),
    [(Renames, "gives `fixtures.define` another name"), (SetsItem, "calls `fixtures.__setitem__`")],
)
def test_a_write_in_an_unusual_form_is_not_followed(kind: type[Extensible], does: str) -> None:
    (unknown,) = kind([ask("inner", "x")]).check()
    assert unknown.endswith(does)
