"""What a check keeps of a class: it is counted what is read anew, and what a change of the class makes it read."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from types import FunctionType
from typing import Any

import pytest

from tests.checker.checking import ask, mistake
from train_manager import Extensible, Extension, provides
from train_manager.checker import reader, walk
from train_manager.checker.known import MOST_TREES, refresh
from train_manager.checker.tree import StageTree
from train_manager.errors import CheckError


@contextmanager
def counted(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """The methods whose source is read, and ``walk`` for each walk."""
    done: list[str] = []
    read, walked = reader._read, walk.stage_tree

    def _read(function: FunctionType, owner: type) -> Any:
        done.append(function.__name__)
        return read(function, owner)

    def stage_tree(*args: Any) -> StageTree:
        done.append("walk")
        return walked(*args)

    with monkeypatch.context() as patch:
        patch.setattr(reader, "_read", _read)
        patch.setattr(walk, "stage_tree", stage_tree)
        yield done


def new_class() -> type[Extensible]:
    class Fits(Extensible):
        def fit(self) -> None:
            with self.staged("fit", {"x": 1}):
                self.helper()

        def helper(self) -> None: ...

    return Fits


def test_a_second_object_of_a_class_is_checked_without_reading_or_walking(monkeypatch: pytest.MonkeyPatch) -> None:
    fits = new_class()
    fits([ask("fit", "x")]).check()
    with counted(monkeypatch) as done:
        fits([ask("fit", "x")]).check()
    assert done == ["pre_fit"]  # of an extension of another class


def test_an_extension_that_defines_nothing_costs_no_walk(monkeypatch: pytest.MonkeyPatch) -> None:
    fits = new_class()()
    fits.check()
    fits.add_extension(ask("fit", "x"))
    with counted(monkeypatch) as done:
        fits.check()
    assert "walk" not in done


def test_an_extension_that_defines_a_fixture_is_walked_with(monkeypatch: pytest.MonkeyPatch) -> None:
    class Provides(Extension):
        @provides("y")
        def pre_fit(self) -> int:
            return 1

    fits = new_class()()
    fits.check()
    fits.add_extension(Provides())
    with counted(monkeypatch) as done:
        fits.add_extension(ask("helped", "y"))
        with pytest.raises(CheckError):
            fits.check()
    assert done.count("walk") == 1


def test_a_method_that_is_replaced_on_the_class_is_seen() -> None:
    def helper(self: Any) -> None:
        with self.staged("helped", {"y": 1}):
            pass

    fits = new_class()
    mistake(ask("helped", "y"), fits)
    fits.helper = helper  # type: ignore[attr-defined]
    fits([ask("helped", "y")]).check()
    del fits.helper  # type: ignore[attr-defined]
    mistake(ask("helped", "y"), fits)


def test_a_method_that_is_replaced_on_a_base_class_is_seen() -> None:
    def helper(self: Any) -> None:
        self.fixtures["y"] = 1

    base = new_class()

    class Derived(base):  # type: ignore[misc, valid-type]
        def after(self) -> None:
            with self.staged("after"):
                self.helper()

    mistake(ask("after", "y"), Derived)
    base.helper = helper  # type: ignore[attr-defined]

    class Asks(Extension):
        def post_after(self, y: int) -> None: ...

    Derived([Asks()]).check()


def test_a_method_that_is_replaced_on_the_class_of_an_extension_is_seen() -> None:
    class Writes(Extension):
        def pre_fit(self, fixtures: Any) -> None:
            self.write(fixtures)

        def write(self, fixtures: Any) -> None: ...

    def write(self: Any, fixtures: Any) -> None:
        fixtures["y"] = 1

    class Asks(Extension):
        def post_fit(self, y: int) -> None: ...

    fits = new_class()
    with pytest.raises(CheckError):
        fits([Writes(), Asks()]).check()
    Writes.write = write  # type: ignore[method-assign]
    fits([Writes(), Asks()]).check()


def test_only_some_trees_are_kept() -> None:
    fits = new_class()
    for number in range(2 * MOST_TREES):
        provide = type("Provides", (Extension,), {"pre_fit": provides(f"y{number}")(lambda self: 1)})
        fits([provide()]).check()
    assert len(refresh(fits).trees) <= MOST_TREES
