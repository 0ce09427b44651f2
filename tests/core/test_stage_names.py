"""Stage names that Python would write in another way as identifiers: NFKC, here a ligature and a combining accent."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from train_manager import CheckError, Extensible, Extension, every, fixture, provides, scheduled
from train_manager.core.scope import stage_name

FIT = "\ufb01t"  # one character for f and i
CAFE = "cafe\u0301"  # e and its accent apart


class Loop(Extensible):
    def run(self) -> None:
        with self.staged("\ufb01t", {"size": 2}) as stage:
            self.name = stage.name
            with self.staged("inner"):
                pass
            self.fixtures.define("late", 3, stage="\ufb01t")

    def twice(self, depth: int = 2) -> None:
        with self.staged(FIT if depth == 2 else "fit", {"depth": depth}):
            if depth > 1:
                self.twice(depth - 1)


class Watcher(Extension):
    def __init__(self) -> None:
        self.seen: list[Any] = []

    def pre_fit(self, size: int = 0) -> None:
        self.seen.append(("pre", size))

    def post_fit(self, late: int = 0) -> None:
        self.seen.append(("post", late))


def test_the_name_is_that_of_the_identifier() -> None:
    assert [stage_name(name) for name in ("fit", FIT, CAFE)] == ["fit", "fit", "caf\u00e9"]


def test_a_stage_with_a_ligature_meets_the_hook_without_at_each_opening() -> None:
    watcher, loop = Watcher(), Loop()
    loop.add_extension(watcher)
    loop.run()
    loop.run()
    assert watcher.seen == [("pre", 2), ("post", 3)] * 2
    assert loop.name == "fit"


def test_only_the_identifier_has_a_plan() -> None:
    loop = Loop([Watcher()])
    loop.run()
    assert set(loop._store.plans) == {"fit", "inner"}


def test_a_stage_nests_in_itself_under_either_name() -> None:
    loop = Loop()
    loop.twice()
    assert loop.fixtures.path == ()
    assert loop._store.open == {}


def test_defaults_know_the_outer_stage_of_a_recursion() -> None:
    loop = Loop()
    with loop.staged("fit", {"x": 1}), loop.staged(FIT, defaults={"x": 2}):
        assert loop.fixtures["x"] == 2


def test_all_that_names_a_stage_means_the_identifier() -> None:
    class Names(Extension):
        ran = 0

        @fixture(FIT)
        def lazy(self) -> Iterator[int]:
            yield 1

        @provides("kept", stage=FIT)
        def pre_inner(self, lazy: int) -> int:
            return lazy

        @every(2, of=FIT)
        def post_inner(self) -> None:
            self.ran += 1

    names = Names()
    loop = Loop([names, Extension.of(**{f"post_{FIT}": lambda kept: None})])
    loop.check()
    for _ in range(3):
        loop.run()
    assert names.ran == 1


def test_the_check_tells_the_identifier() -> None:
    with pytest.raises(CheckError, match="did you mean 'pre_fit'"):
        Loop([Extension.of(pre_fitt=lambda: None)]).check()


def test_hooks_of_one_stage_under_two_names_are_one() -> None:
    ran = []
    watcher: Any = scheduled(Watcher(), "pre_fit", every(1))
    vars(watcher)[f"pre_{FIT}"] = lambda: ran.append("ligature")
    Loop([watcher]).run()
    assert ran == ["ligature"]
    assert ("pre", 2) in watcher.seen
