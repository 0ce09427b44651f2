"""The state of one Extensible: which scopes are open, what is alive in them, who is being called. Nothing here changes.

run                   owns epoch_num                     alive = {epoch_num, batch, loss}: one flat dict
└─ train_step_batch   owns batch, loss   <- innermost    a scope that closes takes its names out again
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from train_manager.core.alive import Alive
from train_manager.core.scope import Caller, Definer, Scope

FAILURE = ("exc_type", "exc_value", "traceback")
"""For ``@always`` hooks: why the stage ends; None while nothing has failed."""

ALWAYS_THERE = ("fixtures", "stage", *FAILURE)
"""Names that nobody may define; an Extensible adds its own."""


class State:
    """What is alive, and in which scopes.

    Attributes:
        alive: the values.
        always_there: names that need no stage and that nobody may write.
        innermost: the innermost open scope.
        opened: the innermost open scope of each stage name.
        left: for each stage that has closed, what it owned the last time: names without values.
        running: the hook or provider that is being called.
        requests: the providers that are being computed, the first asked for first.
        strict: hooks may write only what they declare.
        shares: another Extensible has, or had, an extension of this one.
        strand: who opened the outermost stage: a thread, and a task in it.
    """

    def __init__(self, always: Mapping[str, Any]) -> None:
        self.alive = Alive({"stage": None, **dict.fromkeys(FAILURE), **always})
        self.always_there = frozenset({*self.alive, *ALWAYS_THERE})
        self.innermost: Scope | None = None
        self.opened: dict[str, Scope] = {}
        self.left: dict[str, Mapping[str, Definer]] = {}
        self.running: Caller | None = None
        self.requests: list[str] = []
        self.strict = False
        self.shares = False
        self.strand: tuple[int, object] | None = None

    @property
    def path(self) -> tuple[str, ...]:
        """Names of the open stages, outermost first."""
        return self.innermost.path if self.innermost else ()

    def names(self) -> list[str]:
        """What is alive, the always-there names left out."""
        return [name for name in self.alive.names() if name not in self.always_there]

    def took(self, name: str) -> str | None:
        """The stage that took a name along as it closed; None where none has."""
        return next((stage for stage in reversed(self.left) if name in self.left[stage]), None)

    def is_hidden(self, name: str, owner: Scope | None = None) -> bool:
        """Whether a recursion inside ``owner`` (None: anywhere) has put this name aside: it will be back."""
        scope = self.innermost
        while scope is not None and scope is not owner:
            if name in scope.hidden or name in scope.hidden_promised:
                return True
            scope = scope.parent
        return False

    def owner_of(self, name: str) -> Scope | None:
        """The scope that owns a name, or has promised it; None where it is not alive."""
        scope = self.innermost
        while scope is not None and name not in scope.owned and name not in scope.promised:
            scope = scope.parent
        return scope
