from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from train_manager import Extensible, Extension, Watcher, always, fixture, modifies
from train_manager.core.plan import without_hooks
from train_manager.core.scope import Caller, Scope
from train_manager.errors import StageError
from train_manager.testing import tiny_manager


class Told(Watcher):
    """Note all that it is told."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def saw(self, stage: Scope, ran: Caller | str) -> None:
        self.lines.append(f"{stage.name} {ran if isinstance(ran, str) else ran.label.partition('.')[2]}")

    def taken(self) -> list[str]:
        """Return the lines so far, and forget them."""
        lines, self.lines = self.lines, []
        return lines


class Work(Extensible):
    def work(self, *, fails: bool = False) -> None:
        with self.staged("work", {"size": 2}):
            with self.staged("part"):
                pass
            if fails:
                raise ValueError("body")

    def ask(self) -> int:
        with self.staged("work", {"size": 2}):
            found: int = self.fixtures["double"]
            return found


class Around(Extension):
    def around_part(self) -> Iterator[None]:
        yield

    def pre_part(self, size: int) -> None: ...

    @modifies("size")
    def post_part(self, size: int) -> int:
        return size + 1


class Fails(Extension):
    def pre_work(self) -> None: ...

    @always
    def post_work(self) -> None: ...

    def post_part(self) -> None:
        raise KeyError("hook")


class Doubles(Extension):
    @fixture("work")
    def double(self, size: int) -> Iterator[int]:
        yield 2 * size


def test_a_watcher_is_told_of_each_hook_and_as_stages_begin_and_as_their_bodies_end() -> None:
    Work([Around(), told := Told()]).work()
    of_part = ["part begins", "part around_part", "part pre_part", "part ends", "part post_part", "part around_part"]
    assert told.lines == ["work begins", *of_part, "work ends"]


def test_after_a_failed_body_it_is_told_of_its_end_before_the_always_hooks() -> None:
    work = Work([Fails(), told := Told()])
    with pytest.raises(ValueError, match="body"):
        Work([told]).work(fails=True)
    assert told.taken() == ["work begins", "part begins", "part ends", "work ends"]
    with pytest.raises(KeyError, match="hook"):
        work.work()
    assert told.taken()[2:] == ["part begins", "part ends", "part post_part", "work ends", "work post_work"]


def test_it_is_told_of_the_end_of_a_stage_that_a_generator_has_left_open() -> None:
    class LeavesOpen(Extensible):
        def parts(self) -> Iterator[None]:
            with self.staged("part"):
                yield

    left = LeavesOpen([told := Told()])
    parts = left.parts()
    with pytest.raises(StageError, match="while stage 'part' inside it was still open"), left.staged("work"):
        next(parts)
    assert told.lines == ["work begins", "part begins", "part ends", "work ends"]


def test_it_is_told_of_a_provider_apart_from_the_body_or_the_hook_that_asks() -> None:
    work = Work([Doubles(), told := Told()])
    assert work.ask() == 4
    assert told.taken() == ["work begins", "work asks", "work double", "work ends", "work double"]

    class Asks(Extension):
        def pre_work(self, double: int) -> None: ...

    work.add_extension(Asks())
    work.ask()
    assert told.taken()[:4] == ["work begins", "work pre_work", "work double", "work pre_work"]


class Broken(Watcher):
    def __init__(self, at: str) -> None:
        self.at = at
        self.count = 0

    def saw(self, stage: Scope, ran: Caller | str) -> None:
        if self.at in (ran, getattr(ran, "label", "")):
            self.count += 1
            raise RuntimeError("watcher")


@pytest.mark.parametrize(
    ("at", "notes"),
    [
        ("begins", []),
        ("Around.pre_part", ["after hook Around.pre_part of extension 'around', at stage work > part"]),
    ],
)
def test_an_error_of_a_watcher_names_it_and_the_hook_that_it_was_told_of(at: str, notes: list[str]) -> None:
    with pytest.raises(RuntimeError, match="watcher") as caught:
        Work([Around(), Broken(at)]).work()
    assert caught.value.__notes__[:2] == ["in watcher Broken.saw of extension 'broken'", *notes]


def test_an_error_of_a_watcher_does_not_hide_the_error_of_a_body() -> None:
    with pytest.raises(ValueError, match="body") as caught, Work([Broken("ends")]).staged("work"):
        raise ValueError("body")
    assert "RuntimeError: watcher\n  in watcher Broken.saw of extension 'broken'" in caught.value.__notes__[0]


def test_an_error_of_a_watcher_does_not_hide_the_error_of_the_hook_that_it_was_told_of() -> None:
    with pytest.raises(ExceptionGroup, match="2 hooks") as caught:
        Work([Fails(), Broken("Fails.post_part")]).work()
    assert [type(error) for error in caught.value.exceptions] == [KeyError, RuntimeError]


def test_one_that_pauses_or_has_left_is_not_told_also_by_stages_that_are_open() -> None:
    work = Work([Around(), told := Told()])
    with work.staged("work", {"size": 1}):
        work.remove_extension("told")
    assert told.taken() == ["work begins"]
    work.add_extension(told)
    work._registry.pause(["told"])
    work.work()
    assert told.taken() == []
    work._registry.resume(["told"])
    work.work()
    assert len(told.taken()) == 8


def test_one_that_comes_is_told_from_the_next_stage_that_opens() -> None:
    work, told = Work([Around()]), Told()
    with work.staged("work", {"size": 1}):
        work.add_extension(told)
        with work.staged("part"):
            pass
    assert [*dict.fromkeys(line.split()[0] for line in told.lines)] == ["part"]


def test_several_watchers_are_told_in_their_order() -> None:
    first, second = Told(), Told()
    second.lines = first.lines
    Work([first, second]).work()
    assert first.lines[:4] == ["work begins"] * 2 + ["part begins"] * 2


def test_a_watcher_of_process_0_is_not_told_in_another_process() -> None:
    told = Told()
    vars(told)["ranks"] = 0
    work = Work([told])
    work._registry.use_rank(1)
    work.work()
    assert told.lines == []


def test_stages_without_hooks_inside_of_a_hook_are_the_work_of_the_hook() -> None:
    class Replays(Extension):
        def post_part(self, extensible: Any) -> None:
            with without_hooks(extensible._store), extensible.staged("again"):
                pass

    Work([Replays(), told := Told()]).work()
    assert told.lines == ["work begins", "part begins", "part ends", "part post_part", "work ends"]


def test_a_watcher_opens_the_stages_that_stay_closed_otherwise_and_explain_says_so() -> None:
    tm = tiny_manager(told := Told(), epochs=1)
    tm.train()
    assert "train_model_forward begins" in told.lines
    assert "train_model_forward  (opened for a watcher)" in tm.explain(all=True)


def test_a_watcher_without_a_method_saw_is_refused_as_the_first_stage_opens() -> None:
    with pytest.raises(NotImplementedError):
        Work([Watcher()]).work()
