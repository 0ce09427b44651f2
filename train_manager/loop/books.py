"""Books: what an extension measures over an epoch or a phase, kept for as long as that lives."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Final, Generic, Protocol, TypeVar, final

from train_manager.model.per_object import PerObject
from train_manager.validation import require_one_of

PERS: Final = ("epoch", "phase", "manager")


class Stateful(Protocol):
    """A value that a checkpoint can hold."""

    def state_dict(self) -> Any: ...
    def load_state_dict(self, state: Any, /) -> object: ...


Value = TypeVar("Value", bound=Stateful)


@final
class Lifetime:
    """An epoch, a phase or a whole training: what a value of a ``Book`` belongs to, and dies with.

    Args:
        key: its name in checkpoints, the same as the same program runs again; ``""`` for what is outside of phases.
    """

    def __init__(self, key: str = "") -> None:
        self.key = key


@final
class Book(Generic[Value]):
    """What an extension measures over an epoch or a phase, in place of an attribute that the extension resets.

    >>> from train_manager import Book, Extension
    >>> from train_manager.metrics.averages import WeightedMean
    >>> from train_manager.testing import tiny_manager
    >>> class MeanSize(Extension):
    ...     def __init__(self):
    ...         self.mean = Book(WeightedMean)
    ...     def post_train_step_batch(self, prediction, train_manager=None):
    ...         self.mean.of(train_manager).append(prediction.detach().abs().mean(), weight=1)
    ...     def post_train_step_epoch(self, train_manager=None):
    ...         print(f"{self.mean.of(train_manager).value():.3f}")
    ...     def state_dict(self):
    ...         return {"mean": self.mean.state_dict()}
    ...     def load_state_dict(self, state):
    ...         self.mean.load_state_dict(state["mean"])
    >>> result = tiny_manager(MeanSize(), epochs=2).train()
    0.126
    0.122

    The value of an epoch is made as it is first asked for. It stays while the epoch is open, over several calls and
    over phases between them, which have values of their own, and goes on from a checkpoint. An epoch that an error or
    a hook drops takes its value along. Batches of ``train_on_batch`` are an epoch of their own, until ``end_epoch``.
    A hook that is called by hand, without a manager, has one value.

    Args:
        make: makes a value, with ``state_dict`` and ``load_state_dict``.
        per: "epoch"; "phase": one value for what is outside of phases, and one for each phase; or "manager".

    Attributes:
        latest: the value that was asked for last.
    """

    def __init__(self, make: Callable[[], Value], per: str = "epoch") -> None:
        self._make = make
        self._per = require_one_of(per, "per", PERS)
        self._values: PerObject[Lifetime, Value] = PerObject()
        self._by_hand = self.latest = make()
        self._waiting: dict[str, Any] = {}  # states that were loaded by hand, until a manager is there

    def of(self, train_manager: Any = None) -> Value:
        """Return the value of the epoch or phase that a TrainManager is in; without one, that of hooks by hand."""
        find = getattr(train_manager, "_lifetime", None)
        if find is None:
            self.latest = self._by_hand
            return self.latest
        lifetime: Lifetime = find(self._per)
        value = self._values.get(lifetime)
        if value is None:
            value = self._values[lifetime] = self._loaded(self._waiting.pop(lifetime.key, None))
        self.latest = value
        return value

    def begin(self, train_manager: Any = None) -> Value:
        """Replace that value by a new one, where something begins that is shorter than the epoch or phase."""
        find = getattr(train_manager, "_lifetime", None)
        if find is None:
            self._by_hand = self._make()
        else:
            self._values.pop(find(self._per), None)
        return self.of(train_manager)

    def values(self) -> list[Value]:
        """Return all values, of all that lives."""
        return [self._by_hand, *self._values.values()]

    def state_dict(self) -> dict[str, Any]:
        """Return the values of the open epochs or phases of the manager that is saved, by their keys."""
        lifetimes = _open_lifetimes.get()
        kept = [lifetime for lifetime in (lifetimes or {}).get(self._per, ()) if lifetime in self._values]
        states = {lifetime.key: self._values[lifetime].state_dict() for lifetime in kept}
        if lifetimes is None:
            states = {"": self.latest.state_dict()}
        return {key: state for key, state in states.items() if state}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore what ``state_dict`` returned, to what has the same keys; the rest begins anew."""
        lifetimes = _open_lifetimes.get()
        if lifetimes is None:
            self._by_hand = self.latest = self._loaded(state.get(""))
            self._waiting = {} if self._per == "epoch" else dict(state)  # an epoch to come begins anew
        for lifetime in list(self._values) if lifetimes is None else lifetimes[self._per]:
            self._waiting.pop(lifetime.key, None)
            known = self._values.get(lifetime)
            self.latest = self._values[lifetime] = self._loaded(state.get(lifetime.key), known)

    def _loaded(self, state: Any, known: Value | None = None) -> Value:
        value = self._make() if known is None or state is None else known
        if state is not None:
            value.load_state_dict(state)
        return value


_open_lifetimes: ContextVar[Mapping[str, Iterable[Lifetime]] | None] = ContextVar(
    "train_manager_lifetimes", default=None
)


@contextmanager
def saved_or_loaded(lifetimes: Mapping[str, Iterable[Lifetime]]) -> Iterator[None]:
    """Save or load the values of these lifetimes in the ``with`` block: those of one manager, of perhaps several."""
    token = _open_lifetimes.set(lifetimes)
    try:
        yield
    finally:
        _open_lifetimes.reset(token)
