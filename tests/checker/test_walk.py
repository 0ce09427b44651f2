from __future__ import annotations

import linecache
from collections.abc import Callable
from types import FunctionType
from typing import Any

import pytest

from train_manager import Extensible, Extension
from train_manager.checker.methods import Methods
from train_manager.checker.tree import StageTree
from train_manager.checker.walk import MOST_STEPS, _Walk, stage_tree
from train_manager.errors import CheckError


def tree_of(extensible: Extensible, entry: str | None = None) -> StageTree:
    return stage_tree(Methods(type(extensible)), extensible._registry.plans.__getitem__, entry)


class Loop(Extensible):
    """Two ways in: both open the same stage."""

    def train(self) -> None:
        with self.staged("run", {"epoch_num": 0}):
            self.step(1)

    def once(self) -> None:
        self.step(2)

    def step(self, batch: int) -> None:
        with self.staged("step", {"batch": batch}):
            self.fixtures["loss"] = 1


def test_hooks_and_methods_of_the_core_are_no_roots() -> None:
    class Own(Loop):
        def pre_step(self) -> None:
            with self.staged("never"):
                pass

    assert ("never",) not in tree_of(Own()).nodes


# ---- how long it takes, counted in nodes ---------------------------------------------------------------------------


def made(source: str) -> type[Extensible]:
    """A class from source that can be read."""
    name = f"<made {hash(source)}>"
    linecache.cache[name] = (len(source), None, source.splitlines(keepends=True), name)
    scope: dict[str, Any] = {"Extensible": Extensible, "__name__": "made"}
    exec(compile(source, name, "exec"), scope)
    found: type[Extensible] = scope["Made"]
    return found


@pytest.fixture
def visits(monkeypatch: pytest.MonkeyPatch) -> Callable[[type[Extensible]], int]:
    """How many nodes a walk through a class visits."""

    def count(cls: type[Extensible]) -> int:
        walks: list[_Walk] = []

        begin = _Walk.begin

        def noting(walk: _Walk, function: FunctionType) -> None:
            walks.append(walk)
            begin(walk, function)

        monkeypatch.setattr(_Walk, "begin", noting)
        tree_of(cls())
        return walks[0].steps

    return count


def pairwise(count: int, around: str) -> str:
    calls = "".join(f"            self.m{number}()\n" for number in range(count))
    return "class Made(Extensible):\n" + "".join(
        f"    def m{number}(self):\n        {around.format(number)}:\n{calls}" for number in range(count)
    )


def test_methods_that_all_call_each_other_are_walked_once_each(visits: Callable[[type[Extensible]], int]) -> None:
    assert visits(made(pairwise(80, "if self"))) == 80 * 80


def test_a_chain_of_calls_that_come_twice_is_no_explosion(visits: Callable[[type[Extensible]], int]) -> None:
    chain = "class Made(Extensible):\n" + "".join(
        f"    def m{number}(self):\n        self.m{number + 1}()\n        self.m{number + 1}()\n"
        for number in range(50)
    )
    cls = made(chain + "    def m50(self):\n        with self.staged('last', {'x': 1}): pass\n")
    assert visits(cls) < 300


def test_nested_loops_are_walked_a_few_times(visits: Callable[[type[Extensible]], int]) -> None:
    loops = "".join(f"{'    ' * (depth + 2)}for _ in range(2):\n" for depth in range(12))
    cls = made(f"class Made(Extensible):\n    def fit(self):\n{loops}{'    ' * 14}self.fixtures['x'] = 1\n")
    assert visits(cls) < 100


def test_what_has_too_many_ways_is_given_up_said_and_passed_over(visits: Callable[[type[Extensible]], int]) -> None:
    cls = made(pairwise(12, "with self.staged('s{0}')"))
    assert visits(cls) < 10 * MOST_STEPS
    unknown = cls([Extension.of(pre_s3=lambda nothing: None)]).check()
    assert unknown == ["the calls of Made take more paths than the check follows"]


def test_calls_that_go_too_deep_are_given_up_said_and_passed_over() -> None:
    chain = "class Made(Extensible):\n" + "".join(
        f"    def m{number}(self):\n        for _ in [1]:\n            self.m{number + 1}()\n" for number in range(400)
    )
    cls = made(chain + "    def m400(self):\n        with self.staged('last'): pass\n")
    unknown = cls([Extension.of(pre_last=lambda nothing: None)]).check()
    assert unknown == ["the calls of Made take more paths than the check follows"]


def test_a_hook_whose_helpers_all_call_each_other_is_read() -> None:
    calls = "".join(f"        self.m{number}(fixtures)\n" for number in range(40))
    source = "class Made(Extension):\n    def pre_step(self, fixtures):\n        self.m0(fixtures)\n" + "".join(
        f"    def m{number}(self, fixtures):\n{calls}        fixtures['x{number}'] = 1\n" for number in range(40)
    )
    name = "<hooks>"
    linecache.cache[name] = (len(source), None, source.splitlines(keepends=True), name)
    scope: dict[str, Any] = {"Extension": Extension, "__name__": "made"}
    exec(compile(source, name, "exec"), scope)
    extensible = Loop([scope["Made"](), Extension.of(post_step=lambda x0, x39: None)])
    assert extensible.check() == []
    with pytest.raises(CheckError):
        Loop([scope["Made"](), Extension.of(post_step=lambda x40: None)]).check()
