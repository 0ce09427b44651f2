from __future__ import annotations

import gc
import weakref
from collections.abc import Callable
from types import FunctionType
from typing import Any

import pytest

from train_manager import Extensible
from train_manager.checker import reader
from train_manager.checker.method_source import ANYTHING, method
from train_manager.checker.outline import Calls, Defines, HandsOn, Later, Loops, Opens, Touches, WithoutSource
from train_manager.checker.reader import outline_of

At = Callable[[str], str]


class Fits(Extensible):
    def fit(self, data: list[int]) -> None:
        with self.staged("fit", {"data": data}, {"rate": 0.1}):  # opened
            for batch in data:
                self.step(batch)
            self.fixtures["result"] = 1  # defined

    def step(self, batch: int) -> None:
        with self.staged("step", {"batch": batch}):
            self.fixtures.modify("rate", self.fixtures["batch"])

    def names(self, name: str) -> None:
        self.fixtures[name] = self.fixtures.get(name, 1)

    def calls(self) -> None:
        super().__init__()
        self.call_by_name(self.scored)

    def scored(self) -> None: ...

    def hands(self) -> None:
        print([self.step])

    def later(self) -> None:
        print(lambda: self.step(1))

    def silent(self) -> int:
        return sum(range(3))


def items(name: str, owner: type = Fits) -> tuple[Any, ...]:
    function = method(owner, name)
    assert isinstance(function, FunctionType)
    return outline_of(function)


def names(*given: str) -> frozenset[str]:
    return frozenset(given)


def test_an_outline_holds_stages_loops_calls_and_definitions(at: At) -> None:
    assert items("fit") == (
        Opens(
            "fit",
            names("data", "rate"),
            at("opened"),
            (Loops((Calls("step"),)), Defines(names("result"), None, at("defined"))),
        ),
    )


def test_reading_and_modifying_touch_fixtures() -> None:
    (opened,) = items("step")
    assert opened.body == (Touches(names("batch"), modifies=False), Touches(names("rate"), modifies=True))


def test_a_name_made_at_run_time_stands_for_any() -> None:
    assert [item.names for item in items("names")] == [names(ANYTHING)] * 2


def test_a_call_says_how_its_method_is_found_and_called() -> None:
    assert items("calls") == (Calls("__init__", is_super=True), Calls("scored", by_name=True))


def test_a_bound_method_that_is_not_called_is_handed_on() -> None:
    (handed,) = items("hands")
    assert (type(handed), handed.name) == (HandsOn, "step")


def test_a_function_inside_of_a_method_runs_later() -> None:
    (later,) = items("later")
    assert (type(later), later.body) == (Later, (Calls("step"),))


def test_what_has_nothing_to_do_with_stages_leaves_nothing() -> None:
    assert items("silent") == ()


def test_code_without_source_keeps_the_names_in_it() -> None:
    scope: dict[str, Any] = {"__name__": "made"}
    exec("def opens(self): self.staged('x')", scope)
    assert outline_of(scope["opens"]) == (WithoutSource(names("self", "staged"), "opens has no source to read"),)


def test_an_outline_is_made_once(monkeypatch: pytest.MonkeyPatch) -> None:
    read = reader._read
    done: list[FunctionType] = []

    def _read(function: FunctionType) -> Any:
        done.append(function)
        return read(function)

    monkeypatch.setattr(reader, "_read", _read)

    class Derived(Fits):
        def fit(self, data: list[int]) -> None:
            super().fit(data)

    Derived().explain()
    Derived().check()
    type("Another", (Derived,), {})().check()
    assert done.count(Derived.fit) == 1  # type: ignore[arg-type]
    assert len(done) == len({*done})


def test_outlines_do_not_keep_their_class_alive() -> None:
    class Gone(Fits):
        def step(self, batch: int) -> None:
            super().step(batch)  # holds the class in a closure

    Gone().explain()
    reference = weakref.ref(Gone)
    del Gone
    gc.collect()
    assert reference() is None
