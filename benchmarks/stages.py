"""One hook point in three ways: calls written by hand, an empty ``with`` of our form around them, and a stage."""

from __future__ import annotations

from itertools import repeat
from types import TracebackType
from typing import Any, Final

from benchmarks.subscribers import Stage, subscribers
from train_manager import Extensible, Extension

BY_HAND = "calls by hand"
FLOOR = "empty `with` + by hand"
OURS = "Train Manager"
HOOKS: Final[Any] = {"before": "pre_work(self, value)", "after": "post_work(self, value)"}


class ByHand:
    """Loops over bound methods: what one would write for a single class."""

    def __init__(self, objects: list[Any]) -> None:
        self.hooks = [one.pre_work for one in objects], [one.post_work for one in objects]

    def work(self, times: int) -> None:
        before, after = self.hooks
        for _ in repeat(None, times):
            for hook in before:
                hook(1)
            for hook in after:
                hook(1)


class Empty:
    """A ``with`` block that does nothing."""

    __slots__ = ()

    def __enter__(self) -> Empty:
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        pass


class Floor(ByHand):
    """The same loops around a ``staged`` that does nothing: no library of this form can cost less."""

    def staged(self, name: str, fixtures: dict[str, Any]) -> Empty:
        return Empty()

    def work(self, times: int) -> None:
        before, after = self.hooks
        for _ in repeat(None, times):
            for hook in before:
                hook(1)
            with self.staged("work", {"value": 1}):
                pass
            for hook in after:
                hook(1)


class Worker(Extensible):
    """The stage that is measured."""

    def work(self, times: int) -> None:
        for _ in repeat(None, times):
            with self.staged("work", {"value": 1}):
                pass


def by_hand(count: int) -> Stage:
    """So many subscribers, called by hand."""
    objects = subscribers(count, **HOOKS)
    return Stage(ByHand(objects).work, objects)


def floor(count: int) -> Stage:
    """The same around an empty ``with``."""
    objects = subscribers(count, **HOOKS)
    return Stage(Floor(objects).work, objects)


def ours(count: int) -> Stage:
    """So many extensions, each with a pre and a post hook that ask for a fixture."""
    objects = subscribers(count, **HOOKS, base=Extension)
    return Stage(Worker(objects).work, objects)


KINDS = {BY_HAND: by_hand, FLOOR: floor, OURS: ours}
