"""Which fixtures the check takes to be alive, from what a loop and its hooks write."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import pytest

from tests.checker.checking import Loop, ask
from train_manager import Extensible, Extension, provides
from train_manager.errors import CheckError


def test_either_branch_of_a_condition_may_define_a_fixture() -> None:
    class Fits(Extensible):
        def fit(self, fast: bool) -> None:
            with self.staged("fit", {"a": 1} if fast else {"b": 2}):
                if fast:
                    self.fixtures["c"] = 3
                elif self.fixtures.get("d"):
                    self.fixtures["d"] = 4
                with self.staged("inner"):
                    pass

    assert Fits([ask("inner", "a", "b", "c", "d")]).check() == []


def test_a_fixture_of_the_previous_round_is_alive() -> None:
    class Fits(Extensible):
        def fit(self) -> None:
            with self.staged("fit"):
                for number in range(3):
                    if number:
                        with self.staged("later"):
                            pass
                    self.fixtures.setdefault("last", number)
                while self.fixtures["last"]:
                    self.once()

        def once(self) -> None:
            with self.staged("late"):
                pass
            self.fixtures.update({"seen": 1})

    assert Fits([ask("later", "last"), ask("late", "seen")]).check() == []


def test_what_a_hook_left_in_the_previous_round_is_alive() -> None:
    class Fits(Extensible):
        def fit(self) -> None:
            with self.staged("fit"):
                for number in range(3):
                    if number:
                        with self.staged("late"):
                            pass
                    with self.staged("step"):
                        pass

    class Mean(Extension):
        @provides("mean", stage="fit")
        def post_step(self) -> int:
            return 1

    assert Fits([Mean(), ask("late", "mean")]).check() == []


def test_every_part_of_a_try_statement_is_read() -> None:
    class Fits(Extensible):
        def fit(self) -> None:
            with self.staged("fit"):
                try:
                    self.fixtures["a"] = 1
                except ValueError:
                    self.fixtures["b"] = 1
                else:
                    self.fixtures["c"] = 1
                finally:
                    self.fixtures["d"] = 1
                with self.staged("inner"):
                    pass

    assert Fits([ask("inner", "a", "b", "c", "d")]).check() == []


def test_a_local_dict_may_be_given_to_a_stage() -> None:
    class Fits(Extensible):
        def fit(self, more: dict[str, int]) -> None:
            given = {"a": 1, **{"b": 2}}
            given["c"] = 3
            with self.staged("fit", given, defaults=dict(d=4)):  # noqa: C408
                pass

        def other(self) -> None:
            extra = {"a": 1}
            extra.update({"e": 1})
            with self.staged("other", extra):
                pass

    assert Fits([ask("fit", "a", "b", "c", "d"), ask("other", "e")]).check() == []


def test_a_parameter_may_hold_any_fixtures() -> None:
    class Fits(Extensible):
        def fit(self, given: dict[str, int] | None = None) -> None:
            if given is None:
                given = {"a": 1}
            with self.staged("fit", given):
                pass

    assert Fits([ask("fit", "b")]).check() == []


def test_a_dict_that_somebody_else_may_fill_may_hold_any_fixtures() -> None:
    class Fits(Extensible):
        def fit(self, fill: Callable[[dict[str, int]], None]) -> None:
            given = {"a": 1}
            fill(given)
            with self.staged("fit", given):
                pass

    assert Fits([ask("fit", "b")]).check() == []


def test_update_setdefault_and_define_are_read() -> None:
    class Fits(Extensible):
        def fit(self) -> None:
            with self.staged("fit"):
                with self.staged("inner"):
                    self.fixtures.update({"a": 1})
                    self.fixtures.setdefault("b", 2)
                    self.fixtures.define(name="c", value=3)
                    self.fixtures.define("d", 4, "fit")
                    with self.staged("deep"):
                        pass
                with self.staged("next"):
                    pass

    assert Fits([ask("deep", "a", "b", "c", "d"), ask("next", "d")]).check() == []
    with pytest.raises(CheckError):
        Fits([ask("next", "a")]).check()


def test_several_targets_of_one_assignment_are_read() -> None:
    class Fits(Extensible):
        def fit(self) -> None:
            with self.staged("fit"):
                (self.fixtures["a"], [self.fixtures["b"], *_]) = 1, [2]
                c = self.fixtures["c"] = 3
                with self.staged("inner", {"d": c}):
                    pass

    assert Fits([ask("inner", "a", "b", "c", "d")]).check() == []


def test_match_statements_and_walrus_expressions_are_read() -> None:
    class Fits(Extensible):
        def fit(self, kind: object) -> None:
            with self.staged("fit"):
                match kind:
                    case int() if self.ready():
                        self.fixtures["a"] = 1
                    case _:
                        self.fixtures["b"] = 1
                if value := self.fixtures.setdefault("c", 1):
                    with self.staged("inner", {"d": value}):
                        pass

        def ready(self) -> bool:
            self.fixtures["e"] = 1
            return True

    assert Fits([ask("inner", "a", "b", "c", "d", "e")]).check() == []


def test_what_a_hook_writes_through_the_fixtures_is_alive() -> None:
    class Writer(Extension):
        def pre_step(self, fixtures: Any, extensible: Any) -> None:
            fixtures["a"] = 1
            self.more(fixtures)
            extensible.fixtures.define("c", 1, stage="run")

        def more(self, fixtures: Any) -> None:
            fixtures["b"] = 1

    assert Loop([Writer(), ask("forward", "a", "b", "c")]).check() == []


def test_what_a_hook_writes_through_an_extensible_that_it_keeps_is_alive() -> None:
    class Keeps(Extension):
        def __init__(self, kept: list[Extensible]) -> None:
            self.kept = kept

        def pre_step(self) -> None:
            self.kept[0].fixtures["extra"] = 1

    assert Loop([Keeps([]), ask("forward", "extra")]).check() == []


def test_dicts_joined_by_an_operator_are_read() -> None:
    class Fits(Extensible):
        def fit(self, fast: bool) -> None:
            with self.staged("fit", {"a": 1} | {"b": 2}, {"c": 3} if fast else None):
                pass

    assert Fits([ask("fit", "a", "b", "c")]).check() == []
    with pytest.raises(CheckError):
        Fits([ask("fit", "d")]).check()


def test_a_fixture_may_be_defined_in_either_of_two_stages() -> None:
    class Fits(Extensible):
        def fit(self, long: bool) -> None:
            with self.staged("run"), self.staged("fit"), self.staged("step"):
                self.fixtures.define("loss", 1, stage="fit" if long else "run")

    class Watcher(Extension):
        def post_run(self, loss: int) -> None: ...

        def post_fit(self, loss: int) -> None: ...

    assert Fits([Watcher()]).check() == []


def test_the_targets_of_loops_and_of_with_are_read() -> None:
    class Fits(Extensible):
        def fit(self) -> None:
            with self.staged("fit"):
                for self.fixtures["number"] in range(1):
                    with nullcontext(3) as self.fixtures["entered"]:
                        with self.staged("inner"):
                            pass

    assert Fits([ask("inner", "number", "entered")]).check() == []


NAME = "constant"


def test_a_variable_of_a_comprehension_is_not_the_constant_of_the_module() -> None:
    class Fits(Extensible):
        def fit(self) -> None:
            with self.staged("fit"):
                _ = [self.fixtures.setdefault(NAME, 1) for NAME in ("a", "b")]
                with self.staged("inner"):
                    pass

    assert Fits([ask("inner", "a")]).check() == []
