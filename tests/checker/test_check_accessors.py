"""Properties that are set, and methods that are chosen by a type: what they open and write is known."""

from __future__ import annotations

from collections.abc import Iterator
from functools import singledispatchmethod

import pytest

from tests.checker.checking import ask
from train_manager import CheckError, Extensible, Extension


class Dispatching(Extensible):
    def fit(self, data: object) -> None:
        with self.staged("fit", {"data": data}):
            self.work(data)
            with self.staged("after"):
                pass

    @singledispatchmethod
    def work(self, data: object) -> None:
        with self.staged("anything"):
            pass

    @work.register
    def _(self, data: int) -> None:
        with self.staged("number", {"size": data}):
            pass

    @work.register
    def _(self, data: str) -> None:
        self.fixtures["length"] = len(data)


def test_all_methods_of_a_singledispatchmethod_are_followed() -> None:
    asks = [ask("anything", "data"), ask("number", "data", "size"), ask("after", "length")]
    assert Dispatching(asks).check() == []
    assert Dispatching(asks).check("fit") == []


def test_a_mistake_in_a_stage_of_a_singledispatchmethod_is_found() -> None:
    with pytest.raises(CheckError, match="'sise'"):
        Dispatching([ask("number", "sise")]).check()


def test_a_singledispatchmethod_that_only_others_call_is_a_beginning() -> None:
    class Entered(Extensible):
        @singledispatchmethod
        def work(self, data: object) -> None: ...

        @work.register
        def _(self, data: int) -> None:
            with self.staged("number", {"size": data}):
                pass

        @work.register
        def _(self, data: str) -> None: ...

    assert Entered([ask("number", "size")]).check() == []


def test_a_generator_that_is_chosen_by_a_type_is_not_followed() -> None:
    class Generates(Extensible):
        def fit(self, data: object) -> None:
            for _ in self.batches(data):
                with self.staged("step"):
                    pass

        @singledispatchmethod
        def batches(self, data: object) -> Iterator[int]:
            with self.staged("source", {"x": 1}):
                yield 1

    (unknown,) = Generates([ask("step", "x")]).check()
    assert unknown.endswith("chooses `self.batches`, which has a `yield`, by a type")


class Setting(Extensible):
    def fit(self, data: list[int]) -> None:
        with self.staged("fit"):
            self.rate = 1
            with self.staged("inner"):
                pass
        with self.staged("loop"):
            for self.rate in data:
                with self.staged("looped"):
                    pass
        with self.staged("deletes"):
            del self.rate
            with self.staged("deleted"):
                pass

    @property
    def rate(self) -> int:
        return 1

    @rate.setter
    def rate(self, value: int) -> None:
        self.fixtures["rate"] = value
        with self.staged("rating", {"value": value}):
            pass

    @rate.deleter
    def rate(self) -> None:
        self.fixtures["rate"] = None


def test_setters_and_deleters_of_properties_are_followed() -> None:
    asks = [ask(stage, "rate") for stage in ("inner", "looped", "deleted")]
    assert Setting([*asks, ask("rating", "value")]).check() == []


def test_setattr_calls_the_setter() -> None:
    class Sets(Setting):
        def fit(self, data: list[int], name: str = "rate") -> None:
            with self.staged("constant"):
                setattr(self, "rate", 1)  # noqa: B010
                with self.staged("after_constant"):
                    pass
            with self.staged("variable"):
                setattr(self, name, 1)
                with self.staged("after_variable"):
                    pass

    assert Sets([ask("after_constant", "rate"), ask("after_variable", "rate")]).check() == []


def test_an_augmented_assignment_reads_and_sets() -> None:
    class Adds(Extensible):
        def fit(self) -> None:
            with self.staged("fit"):
                self.rate += 1
                with self.staged("inner"):
                    pass

        @property
        def rate(self) -> int:
            self.fixtures["read"] = 1
            return 1

        @rate.setter
        def rate(self, value: int) -> None:
            self.fixtures["written"] = value

    assert Adds([ask("inner", "read", "written")]).check() == []


def test_a_setter_of_an_extension_that_a_hook_uses_counts_as_its_writes() -> None:
    class Writes(Extension):
        @property
        def rate(self) -> int:
            return 1

        @rate.setter
        def rate(self, value: int) -> None:
            self.fixtures["rated"] = value

        def pre_fit(self, fixtures: dict[str, int]) -> None:
            self.fixtures = fixtures
            self.rate = 3

    class Fits(Extensible):
        def fit(self) -> None:
            with self.staged("fit"), self.staged("inner"):
                pass

    Fits([Writes(), ask("inner", "rated")]).check()
