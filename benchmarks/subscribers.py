"""Subscribers: objects that count how often they were called, before and after.

Each is of a class of its own, made from source of its own: Python adapts the code of a method to the objects it has
seen, which would flatter a single class, and punish classes that share their code.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

CLASS = "class Subscriber(Base):\n    before = after = 0\n"
METHOD = "    def {head}:\n        self.{counter} += 1\n"


def subscribers(count: int, *, before: str | None = None, after: str | None = None, base: type = object) -> list[Any]:
    """So many subscribers.

    >>> one, = subscribers(1, after="post_work(self, value)")
    >>> one.post_work(value=1)
    >>> one.before, one.after
    (0, 1)

    Args:
        count: how many.
        before: name and parameters of the method that is called before, if any.
        after: and of the one that is called after.
        base: what they derive from.
    """
    heads = {"before": before, "after": after}
    methods = [METHOD.format(head=head, counter=counter) for counter, head in heads.items() if head is not None]
    source = "".join([CLASS, *methods])
    made = []
    for _ in range(count):
        namespace: dict[str, Any] = {"Base": base}
        exec(source, namespace)
        made.append(namespace["Subscriber"]())
    return made


@dataclass(frozen=True)
class Stage:
    """One hook point: ``run(times)`` runs through it so often."""

    run: Callable[[int], object]
    subscribers: list[Any]


def require_calls(subscribers: list[Any], before: int, after: int) -> None:
    """Complain where a subscriber was not called exactly so often; then count from 0 again."""
    for one in subscribers:
        if (one.before, one.after) != (before, after):
            raise AssertionError(f"called {one.before} and {one.after} times, not {before} and {after}")
        one.before = one.after = 0
