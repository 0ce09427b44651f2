"""Skipping: the method that opens a stage catches the skip of this stage only."""

from __future__ import annotations

import pytest

from train_manager import Extensible, Extension, SkipStage
from train_manager.loop.skip import skippable


class Worker(Extensible):
    """Opens a stage that can be skipped, and a stage inside it that cannot."""

    @skippable("outer")
    def work(self) -> str:
        with self.staged("outer"):
            self.inner()
        return "done"

    def inner(self) -> None:
        with self.staged("inner"):
            pass


class SkipAt(Extension):
    def __init__(self, hook: str) -> None:
        setattr(self, hook, self.skip)

    def skip(self) -> None:
        raise SkipStage


def test_a_method_whose_stage_is_skipped_returns_none() -> None:
    assert Worker([SkipAt("pre_outer")]).work() is None


def test_a_skip_of_an_inner_stage_is_raised_further() -> None:
    with pytest.raises(SkipStage) as caught:
        Worker([SkipAt("pre_inner")]).work()

    assert caught.value.path == ("outer", "inner")


def test_a_skip_of_a_stage_of_this_name_in_another_extensible_is_raised_further() -> None:
    class Other(Extensible):
        def open(self) -> None:
            with self.staged("run"), self.staged("outer"):
                pass

    class Outer(Worker):
        def inner(self) -> None:
            Other([SkipAt("pre_outer")]).open()

    with pytest.raises(SkipStage) as caught:
        Outer().work()
    assert caught.value.path == ("run", "outer")


def test_an_inner_stage_of_the_same_name_is_skipped_alone() -> None:
    class Deep(Extensible):
        done: list[int]

        @skippable("level")
        def down(self, depth: int) -> None:
            with self.staged("level", {"depth": depth}):
                if depth < 2:
                    self.down(depth + 1)
                self.done.append(depth)

    class SkipDeepest(Extension):
        def pre_level(self, depth: int) -> None:
            if depth == 2:
                raise SkipStage

    deep = Deep([SkipDeepest()])
    deep.done = []
    deep.down(0)

    assert deep.done == [1, 0]


def test_a_method_keeps_its_name() -> None:
    assert Worker.work.__name__ == "work"
