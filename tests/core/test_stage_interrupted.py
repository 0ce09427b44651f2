"""Ctrl-C, wherever it comes."""

from __future__ import annotations

import sys
from collections.abc import Callable, Generator, Iterator
from types import FrameType
from typing import Any

import pytest

from train_manager import Extensible, Extension, always, fixture

At = Callable[[str], str]


class Interrupter:
    """Raises KeyboardInterrupt where a signal can arrive: at a call inside the library, and as a loop goes round."""

    def __init__(self, at_point: int) -> None:
        self.left = at_point
        self.lines: dict[FrameType, int] = {}  # where each frame was last

    def __call__(self, frame: FrameType, event: str, argument: Any) -> Interrupter | None:
        if "/train_manager/core/" not in frame.f_code.co_filename.replace("\\", "/"):
            return None
        goes_round = event == "line" and frame.f_lineno < self.lines.get(frame, 0)
        self.lines[frame] = frame.f_lineno
        if event == "call" or goes_round:
            self.left -= 1
            if self.left == 0:
                sys.settrace(None)
                raise KeyboardInterrupt
        return self


class Watching(Extension):
    def pre_step(self, x: int) -> None: ...

    def around_step(self) -> Generator[None]:
        yield

    @always
    def post_step(self, exc_type: object) -> None: ...


def interruptions() -> Iterator[tuple[Extensible, BaseException]]:
    """Interrupt a recursion inside an outer stage at every point inside the library, one after the other."""
    at_point = 1
    while True:
        extensible = Extensible([Watching()])
        previous = sys.gettrace()
        with extensible.staged("run", {"kept": 0}):
            interrupter = Interrupter(at_point)
            try:
                with extensible.staged("around"):
                    sys.settrace(interrupter)
                    with extensible.staged("step", {"x": 1}):
                        extensible.fixtures["y"] = 2
                        with extensible.staged("step", {"x": 1}):
                            extensible.fixtures["y"] = 2
                    sys.settrace(None)
            except KeyboardInterrupt as interrupt:
                yield extensible, interrupt
            finally:
                sys.settrace(previous)
            if interrupter.left > 0:
                return
        at_point += 1


def test_ctrl_c_anywhere_in_the_library_leaves_the_fixtures_as_they_were() -> None:
    count = 0
    for extensible, _ in interruptions():
        assert dict(extensible.fixtures) == {"kept": 0}
        assert extensible.fixtures["stage"].path == ("run",)
        with extensible.staged("step", {"x": 1}):
            pass
        count += 1
    assert count > 100


class InterruptedAtClearing(list[str]):
    """Requests whose clearing Ctrl-C cuts short."""

    def __delitem__(self, index: Any) -> None:
        raise KeyboardInterrupt


@pytest.mark.parametrize("fails", [False, True])
def test_ctrl_c_while_requests_are_cleared_leaves_no_fixture_running(fails: bool) -> None:
    class Lazy(Extensible):
        @fixture("step")
        def lazy(self) -> int:
            if fails:
                raise ValueError
            return 1

    extensible = Lazy()
    with extensible.staged("step"):
        extensible._store.requests = InterruptedAtClearing()
        with pytest.raises(KeyboardInterrupt):
            extensible.fixtures["lazy"]
        assert extensible._store.running is None


class Around(Extension):
    """Notes whether it continues after its yield, and with what."""

    def __init__(self) -> None:
        self.entered, self.left = 0, list[str]()

    def around_step(self) -> Generator[None]:
        self.entered = 1
        try:
            yield
        except BaseException as error:
            self.left.append(type(error).__name__)
            raise
        self.left.append("nothing")

    @always
    def post_step(self) -> None: ...


def test_ctrl_c_between_two_hooks_lets_all_around_hooks_but_one_continue() -> None:
    ends: list[str] = []
    for at_point in range(1, 1000):
        extensible = Extensible({"one": (one := Around()), "other": (other := Around())})
        interrupter, previous = Interrupter(at_point), sys.gettrace()
        try:
            with extensible.staged("run"):
                sys.settrace(interrupter)
                with extensible.staged("step"):
                    pass
                sys.settrace(previous)
        except KeyboardInterrupt:
            pass
        finally:
            sys.settrace(previous)
        assert one.entered + other.entered - len(one.left) - len(other.left) <= 1, at_point
        ends += [*one.left, *other.left]
        if interrupter.left > 0:
            break
    assert {"nothing", "KeyboardInterrupt", "StageError"} <= {*ends}
