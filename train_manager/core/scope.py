"""A scope: one open stage seen as the owner of fixtures.

It knows names, never values: values live in ``Fixtures`` alone, so that nothing can outlive its stage here.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from threading import get_ident
from types import MappingProxyType
from typing import Any, Protocol

from train_manager.core.source import Site


class Caller(Protocol):
    """A hook or a provider: what fixtures know of who is being called."""

    @property
    def label(self) -> str: ...
    @property
    def written(self) -> tuple[str, ...]: ...
    @property
    def call(self) -> Any: ...


Definer = Site | Caller
"""Who defined a fixture: a line of code, or a hook or provider by its return value."""


class Scope:
    """What one open stage owns, and the scope around it.

    During one training batch the scopes of a TrainManager form this stack, innermost at the bottom::

        run                 owns epoch_num, step_num, ...
        └─ train
           └─ train_step_epoch
              └─ train_step_batch       owns batch, prediction, loss, ...
                 └─ train_backward      <- innermost: `fixtures["x"] = 1` would be its own

    Attributes:
        name: the stage's name.
        path: names of the open stages, outermost first, this one last.
    """

    __slots__ = ("__dict__", "__weakref__", "is_open", "name", "opened_at", "owned", "parent")

    # What few stages need stands here as a default, so that opening one does not set it.
    same_name: Scope | None = None
    """The enclosing stage of this name, in a recursion."""
    hidden: Mapping[str, Any] = MappingProxyType({})
    """What `same_name` owns, put aside until this one ends."""
    hidden_promised: Mapping[str, Any] = MappingProxyType({})
    """The same of what it promises."""
    promised: tuple[str, ...] = ()
    """Names that are computed on demand."""
    suspended: tuple[tuple[Any, Any], ...] = ()
    """Hooks and providers that go on when the stage ends, the last one first."""

    def __init__(self, name: str, opened_at: Site) -> None:
        self.name = name
        self.opened_at = opened_at
        self.parent: Scope | None = None
        self.is_open: bool | None = None  # None: not yet
        self.owned: dict[str, Definer] = {}  # name -> where it was defined, or by which hook or provider

    @property
    def depth(self) -> int:
        """How many stages are open, this one included."""
        return len(self.path)

    @property
    def path(self) -> tuple[str, ...]:
        """Names of the open stages, outermost first, this one last."""
        return (*self.parent.path, self.name) if self.parent else (self.name,)

    def __repr__(self) -> str:
        return f"<stage {' > '.join(self.path)}>"


def strand() -> tuple[int, object]:
    """Who is running: this thread, and the asyncio task in it. A scope belongs to the one that opened it."""
    asyncio: Any = sys.modules.get("asyncio")  # where nobody imported it there are no tasks
    if asyncio is None or asyncio._get_running_loop() is None:
        return get_ident(), None
    return get_ident(), asyncio.current_task()
