"""The state of one Extensible: which scopes are open, what is alive in them, who is being called. Nothing here changes.

run                   owns epoch_num                     alive = {epoch_num, batch, loss}: one flat dict
└─ train_step_batch   owns batch, loss   <- innermost    a scope that closes takes its names out again
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol, cast

from train_manager.core import strand
from train_manager.core.scope import Caller, Definer, Place, Scope

FAILURE = ("exc_type", "exc_value", "traceback")
"""For ``@always`` hooks: why the stage ends; None while nothing has failed."""

ALWAYS_THERE = ("fixtures", "stage", *FAILURE)
"""Names that nobody may define; an Extensible adds its own."""


class Promised(Protocol):
    """A provided fixture of an open stage that nobody has asked for yet; calling it computes the value."""

    @property
    def scope(self) -> Scope: ...
    @property
    def provider(self) -> Caller: ...
    def __call__(self) -> Any: ...


class State:
    """What is alive, and in which scopes.

    Attributes:
        alive: the values, by name; a plain dict, for all that is fast in Python is fast with it.
        promised: what would be computed at its first look-up.
        always_there: names that need no stage and that nobody may write.
        innermost: the innermost open scope.
        places: of every stage name that has been asked for, in that order.
        place_of: makes one.
        plan_of: decides what runs at a stage, where that has not been decided.
        extensions: who is served, by name.
        running: the hook or provider that is being called.
        requests: the providers that are being computed, the first asked for first.
        strict: hooks may write only what they declare.
        times_hooks: the time that hooks take is added up in ``hook_seconds``.
        shares: another Extensible has, or had, an extension of this one.
        is_own: whether it is this thread that opened the outermost stage the last time; never where a task has.
        task: a weak reference to that task.
    """

    __slots__ = (
        "__weakref__",
        "alive",
        "always_there",
        "extensions",
        "hook_seconds",
        "innermost",
        "is_own",
        "place_of",
        "places",
        "plan_of",
        "promised",
        "requests",
        "running",
        "shares",
        "strict",
        "task",
        "times_hooks",
    )  # not for space: attributes of a fixed layout are read fastest, and every stage reads a dozen

    def __init__(self, always: Mapping[str, Any]) -> None:
        self.alive: dict[str, Any] = {**dict.fromkeys(FAILURE), **always}
        # The innermost stage is looked up rather than written at each opening and each end.
        self.promised: dict[str, Promised] = {"stage": cast(Any, lambda: self.innermost)}
        self.always_there = frozenset({*self.alive, *ALWAYS_THERE})
        self.innermost: Scope | None = None
        self.places: dict[str, Place] = {}
        self.place_of: Callable[[str], Place] = self.places.__getitem__
        self.plan_of: Callable[[str], Any] = self.places.__getitem__
        self.extensions: Mapping[str, Any] = {}
        self.running: Caller | None = None
        self.requests: list[str] = []
        self.strict = False
        self.shares = False
        self.times_hooks = False
        self.hook_seconds = 0.0
        self.is_own: strand.IsOwn = strand.nobody
        self.task: Callable[[], object] | None = None

    def scope_of(self, stage: str) -> Scope | None:
        """The innermost open scope of this name."""
        place = self.places.get(stage)
        return None if place is None else place.open

    @property
    def opened(self) -> dict[str, Scope]:
        """The innermost open scope of each stage name."""
        return {name: place.open for name, place in self.places.items() if place.open is not None}

    @property
    def left(self) -> dict[str, Mapping[str, Definer | None]]:
        """For each stage that has closed, what it owned the last time."""
        return {name: place.left for name, place in self.places.items()}

    @property
    def path(self) -> tuple[str, ...]:
        """Names of the open stages, outermost first."""
        return self.innermost.path if self.innermost else ()

    def has(self, name: object) -> bool:
        """Whether a look-up would find it; computes nothing."""
        return name in self.alive or name in self.promised

    def absent(self, defaults: Mapping[str, Any], stage: str) -> dict[str, Any]:
        """Those of some values whose names will not be alive when a stage of this name opens."""
        outer = self.scope_of(stage)  # what it owns will be hidden
        hidden = {*outer.owned, *outer.promised} if outer is not None else set()
        return {name: defaults[name] for name in defaults if not self.has(name) or name in hidden}

    def value(self, name: str) -> Any:
        """The value of what is alive or promised."""
        return self.alive[name] if name in self.alive else self.promised[name]()

    def names(self) -> list[str]:
        """What is alive or promised, the always-there names left out."""
        return [name for name in (*self.alive, *self.promised) if name not in self.always_there]

    def took(self, name: str) -> str | None:
        """The stage that took a name along as it closed; None where none has."""
        return next((stage for stage, place in reversed(self.places.items()) if name in place.left), None)

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
