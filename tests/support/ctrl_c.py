"""What the tests of clean-ups share: Ctrl-C at any of their calls."""

from __future__ import annotations

import sys
from types import FrameType, TracebackType
from typing import Any

PLACES = ("/extensions/", "/train_manager/model/")


class CtrlC:
    """Raises one KeyboardInterrupt where a signal can arrive: at a call inside a function, and as a loop goes round.

    Args:
        at_point: the number of that place, counted from 1.
        inside: the name of the function, which is one of an extension; what it calls in this library counts too.

    Attributes:
        has_come: whether it was raised.
    """

    def __init__(self, at_point: int, inside: str) -> None:
        self.left = at_point
        self.inside = inside
        self.has_come = False
        self.outermost: FrameType | None = None
        self.lines: dict[FrameType, int] = {}  # where each frame was last

    def __enter__(self) -> CtrlC:
        self.before = sys.gettrace()
        sys.settrace(self)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> bool:
        sys.settrace(self.before)
        return isinstance(error, KeyboardInterrupt) and self.has_come

    def __call__(self, frame: FrameType, event: str, argument: Any) -> CtrlC | None:
        name = frame.f_code.co_filename.replace("\\", "/")
        if self.has_come or not any(place in name for place in PLACES):
            return None
        if self.outermost is None and frame.f_code.co_name == self.inside:
            self.outermost = frame
        if self.outermost is None:
            return self
        self._count(frame, event)
        if event == "return" and frame is self.outermost:
            self.outermost = None
        return self

    def _count(self, frame: FrameType, event: str) -> None:
        goes_round = event == "line" and frame.f_lineno < self.lines.get(frame, 0)
        self.lines[frame] = frame.f_lineno
        if event == "call" or goes_round:
            self.left -= 1
            if self.left == 0:
                self.has_come = True
                raise KeyboardInterrupt
