from __future__ import annotations

import gc
import weakref
from collections.abc import Callable, Iterator
from types import FunctionType
from typing import Any

from train_manager import Extensible
from train_manager.checker.method_source import ANYTHING, method
from train_manager.checker.outline import (
    Calls,
    Defines,
    Loops,
    Opens,
    Touches,
    Unknown,
    Yields,
)
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

    def generate(self) -> Iterator[int]:
        yield 1

    def names(self, name: str) -> None:
        self.fixtures[name] = self.fixtures.get(name, 1)

    def silent(self) -> int:
        return sum(range(3))


def items(name: str, owner: type = Fits) -> tuple[Any, ...]:
    function = method(owner, name)
    assert isinstance(function, FunctionType)
    return outline_of(function, owner)


def names(*given: str) -> frozenset[str]:
    return frozenset(given)


def test_an_outline_holds_stages_loops_calls_and_definitions(at: At) -> None:
    step = method(Fits, "step")
    assert step is not None
    assert items("fit") == (
        Opens(
            "fit",
            names("data", "rate"),
            at("opened"),
            (Loops((Calls(step),)), Defines(names("result"), None, at("defined"))),
        ),
    )


def test_reading_and_modifying_touch_fixtures() -> None:
    (opened,) = items("step")
    assert opened.body == (Touches(names("batch"), modifies=False), Touches(names("rate"), modifies=True))


def test_a_name_made_at_run_time_stands_for_any() -> None:
    assert [item.names for item in items("names")] == [names(ANYTHING)] * 2


def test_a_yield_is_noted() -> None:
    assert items("generate") == (Yields(),)


def test_what_has_nothing_to_do_with_stages_leaves_nothing() -> None:
    assert items("silent") == ()


def test_code_without_source_is_unknown_only_where_it_could_open_stages() -> None:
    scope: dict[str, Any] = {"__name__": "made"}
    exec("def opens(self): self.staged('x')\ndef calls(self): self.fit([])\ndef shows(self): return 'x'", scope)
    made = type("Made", (Fits,), {name: scope[name] for name in ("opens", "calls", "shows")})
    assert items("opens", made) == (Unknown("opens has no source to read"),)
    assert items("calls", made) == (Unknown("calls has no source to read"),)
    assert items("shows", made) == ()


def test_an_outline_is_made_once() -> None:
    assert items("fit") is items("fit")


def test_outlines_do_not_keep_their_class_alive() -> None:
    class Gone(Fits):
        def step(self, batch: int) -> None:
            super().step(batch)  # holds the class in a closure

    Gone().explain()
    reference = weakref.ref(Gone)
    del Gone
    gc.collect()
    assert reference() is None
