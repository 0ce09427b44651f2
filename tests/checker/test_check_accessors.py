"""Code that runs as an attribute is set or got: it is not read, and what uses it is said to be unknown."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partialmethod, singledispatchmethod
from typing import Any

import pytest

from tests.checker.checking import Loop, ask
from train_manager import Extensible, Extension
from train_manager.errors import CheckError


class Setting(Extensible):
    """Its property defines a fixture as it is set."""

    def fit(self, data: list[int]) -> None:
        with self.staged("fit"):
            self.set_rate(data)
            with self.staged("inner"):
                pass

    def set_rate(self, data: list[int]) -> None:
        raise NotImplementedError

    @property
    def rate(self) -> int:
        return 1

    @rate.setter
    def rate(self, value: int) -> None:
        self.fixtures["rate"] = value
        with self.staged("rating"):
            pass

    @rate.deleter
    def rate(self) -> None:
        self.fixtures["rate"] = None


class Assigns(Setting):
    def set_rate(self, data: list[int]) -> None:
        self.rate = 1


def test_a_class_with_a_setter_that_opens_stages_may_do_anything() -> None:
    unknown = Assigns([ask("inner", "rate"), ask("rating")]).check()

    assert unknown == ["Assigns.rate is the setter of a property"]


def test_setattr_may_call_any_setter() -> None:
    class Sets(Loop):
        def train(self) -> None:
            setattr(self, "rate", 1)  # noqa: B010

    assert any("hands `self` to `setattr`" in line for line in Sets([ask("inner", "rate")]).check())


def test_a_property_whose_setter_keeps_a_value_is_no_unknown_code() -> None:
    class Keeps(Loop):
        @property
        def size(self) -> int:
            return self._size

        @size.setter
        def size(self, value: int) -> None:
            self._size = value

        def train(self) -> None:
            self.size = 3
            super().train()

    assert Keeps([ask("step", "batch")]).check() == []
    with pytest.raises(CheckError):
        Keeps([ask("step", "bach")]).check()


class Opening:
    """A descriptor of the user's, which opens a stage as it is read."""

    def __get__(self, holder: Any, owner: type) -> int:
        with holder.staged("opening"):
            return 1


class Chosen(Extensible):
    """Methods that are chosen, or filled in, as they are called."""

    opened = Opening()

    def fit(self, data: object) -> None:
        with self.staged("fit", {"data": data}):
            self.work(data)
            self.last()
            _ = self.opened
            with self.staged("after"):
                pass

    @singledispatchmethod
    def work(self, data: object) -> None: ...

    @work.register
    def _(self, data: int) -> None:
        with self.staged("number", {"size": data}):
            pass

    def step(self, name: str) -> None:
        self.fixtures[name] = 1

    last = partialmethod(step, "last")


def test_what_is_chosen_or_made_as_it_is_read_may_do_anything() -> None:
    unknown = Chosen([ask("number", "size"), ask("opening"), ask("after", "last")]).check()

    assert {
        "Chosen.work is a singledispatchmethod",
        "Chosen.last is a partialmethod",
        "Chosen.opened is a Opening",
    } <= {*unknown}


def test_a_private_method_is_not_followed() -> None:
    class Private(Extensible):
        def fit(self) -> None:
            with self.staged("fit", {"lr": 1}):
                self.__step()

        def __step(self) -> None:
            with self.staged("step"):
                pass

    (unknown,) = Private([ask("step", "lr")]).check()
    assert unknown.endswith("reads `self.__step`")


def test_an_object_that_is_called_or_iterated_is_not_followed() -> None:
    class Itself(Extensible):
        def fit(self) -> None:
            for _ in self:
                self()

        def __iter__(self) -> Iterator[int]:
            with self.staged("source", {"shard": 1}):
                yield 1

        def __call__(self) -> None:
            with self.staged("step"):
                pass

    unknown = Itself([ask("step", "shard")]).check()
    assert [line.rpartition(") ")[2] for line in unknown] == ["hands `self` on"] * 2


class Descriptor:
    """A descriptor of the user's around a method."""

    def __init__(self, function: Any) -> None:
        self.function = function

    def __get__(self, holder: Any, owner: type) -> Any:
        return self.function.__get__(holder, owner)


def test_a_method_behind_a_descriptor_of_its_own_is_not_known() -> None:
    class Fits(Extensible):
        @Descriptor
        def fit(self) -> None:
            with self.staged("fit", {"x": 1}):
                pass

    assert Fits([ask("fit", "x")]).check() == [f"{Fits.__qualname__}.fit is a Descriptor"]


def test_a_setter_of_an_extension_may_write_anything() -> None:
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
