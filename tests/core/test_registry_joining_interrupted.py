"""Ctrl-C in any line that adds an extension to an open run."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from itertools import count
from types import FrameType
from typing import Any

import pytest

from tests.support.rotation import stride
from train_manager import Extensible, Extension, TrainManager, always, fixture, provides
from train_manager.core.store import Options
from train_manager.testing import tiny_manager

CHANGING = ("core/extensible.py", "core/registry.py", "core/plan.py")
ADDING = (*CHANGING, "loop/run.py")


class Interrupter:
    """Raises KeyboardInterrupt at a line of the files that add extensions, and counts the lines until then."""

    def __init__(self, at_line: int, files: tuple[str, ...] = ADDING) -> None:
        self.left = at_line
        self.files = files

    def __call__(self, frame: FrameType, event: str, argument: Any) -> Interrupter | None:
        if not frame.f_code.co_filename.replace("\\", "/").endswith(self.files):
            return None
        if event == "line":
            self.left -= 1
            if self.left == 0:
                sys.settrace(None)
                raise KeyboardInterrupt
        return self


class Whole(Extension):
    """Has a hook of each kind in a run, and a fixture of each kind."""

    def __init__(self) -> None:
        self.log: list[str] = []

    @provides("provided")
    def pre_run(self) -> int:
        self.log.append("pre")
        return 1

    def around_run(self) -> Iterator[None]:
        self.log.append("enter")
        try:
            yield
        finally:
            self.log.append("leave")

    @fixture("run")
    def lazy(self) -> int:
        return 1

    @always
    def post_run(self) -> None:
        self.log.append("post")


def require_whole(extensible: Extensible, whole: Whole) -> bool:
    """Return whether an extension is there; refuse one that is there in part."""
    is_there = any(one is whole for one in extensible.extensions.values())
    owners = {hook.owner for hook in extensible._registry.hooks if hook.label.startswith("Whole.")}
    alive = {name for name in ("provided", "lazy") if name in extensible.fixtures}
    assert owners == ({"whole"} if is_there else set())
    assert alive == ({"provided", "lazy"} if is_there else set())
    assert whole.log == ["enter", "pre"] or not is_there
    return is_there


def interrupted(do: Callable[[], object], at_line: int, files: tuple[str, ...] = ADDING) -> bool:
    """Call a function that Ctrl-C interrupts at a line of some files; return whether it has such a line."""
    interrupter, previous = Interrupter(at_line, files), sys.gettrace()
    try:
        sys.settrace(interrupter)
        do()
    except KeyboardInterrupt:
        pass
    finally:
        sys.settrace(previous)
    return interrupter.left <= 0


class Loop(Extensible):
    _options = Options(joined="run")


def test_ctrl_c_in_any_line_that_adds_an_extension_leaves_it_there_or_not_at_all() -> None:
    outcomes = set()
    for at_line in count(1, stride(3)):
        loop, whole = Loop(), Whole()
        with loop.staged("run"):
            has_line = interrupted(lambda: loop.add_extension(whole), at_line)  # noqa: B023
            outcomes.add(require_whole(loop, whole))
        assert whole.log.count("enter") == whole.log.count("leave"), at_line
        assert whole.log.count("pre") <= whole.log.count("post"), at_line
        if not has_line:
            break
    assert at_line > 50
    assert outcomes == {True, False}


def test_ctrl_c_in_any_line_that_adds_for_a_block_removes_it_and_in_any_that_removes_leaves_nothing_half(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # To read the source takes longer than all else here.
    monkeypatch.setattr(TrainManager, "_check", lambda *args, **kwargs: [])
    tm, reached = tiny_manager(), list[Whole]()

    def add() -> None:
        with tm._adding([whole]):
            reached.append(whole)

    with tm.run():
        for at_line in count(1, stride(3)):
            whole = Whole()
            has_line = interrupted(add, at_line)
            if require_whole(tm, whole):
                assert whole in reached  # Ctrl-C has come in the lines that remove it
                tm.remove_extension(whole)
            assert whole.log.count("pre") <= whole.log.count("post"), at_line
            if not has_line:
                break
    assert at_line > 100


def test_ctrl_c_in_any_line_that_removes_an_extension_of_a_block_removes_it_all_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(TrainManager, "_check", lambda *args, **kwargs: [])
    tm = tiny_manager()

    def add() -> None:
        with tm._adding([whole]):
            pass

    with tm.run():
        for at_line in count(1, stride(3)):
            whole = Whole()
            has_line = interrupted(add, at_line, CHANGING)
            assert not require_whole(tm, whole), at_line
            if not has_line:
                break
    assert at_line > 100
