"""Books: values that an extension measures over an epoch or a phase, and that die with it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Final, Generic, Literal, Protocol, TypeVar, cast, final, overload

from train_manager.loop.ranks import ONE_PROCESS, Ranks, state_for_rank, state_of_ranks
from train_manager.model.per_object import PerObject
from train_manager.validation import require_one_of

PERS: Final = ("epoch", "phase", "manager")


class Stateful(Protocol):
    """A value that a checkpoint can hold."""

    def state_dict(self) -> Any: ...
    def load_state_dict(self, state: Any, /) -> object: ...


Value = TypeVar("Value")
Saved = TypeVar("Saved", bound=Stateful)


@final
class Lifetime:
    """An epoch, a phase or a whole training: a value of a ``Book`` belongs to one of them, and dies with it.

    Args:
        key: its name in checkpoints; the same if the same program runs again, and ``""`` outside of phases.
    """

    def __init__(self, key: str = "") -> None:
        self.key = key


@final
class Book(Generic[Value]):
    """Values that an extension measures over an epoch or a phase, in place of an attribute that the extension resets.

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
    over phases between them, which have values of their own, and resumes from a checkpoint. An epoch that an error or
    a hook drops takes its value along. Batches of ``train_on_batch`` are an epoch of their own, until ``end_epoch``.
    A hook that is called by hand, without a manager, has one value.

    Args:
        make: makes a value; it needs ``state_dict`` and ``load_state_dict`` if it is saved.
        per: "epoch"; "phase": a value for each phase, and one for the training outside of phases; or "manager".
        add: returns the sum of the states of a value in several processes, which train on rows of their own; None if
            all processes measure the same.
        saved: whether checkpoints hold the values. A value that they do not hold begins anew after a resume.

    Attributes:
        latest: the value that was asked for last.
    """

    @overload
    def __init__(
        self: Book[Saved],
        make: Callable[[], Saved],
        per: str = "epoch",
        add: Callable[[list[Any]], Any] | None = None,
    ) -> None: ...

    @overload
    def __init__(self, make: Callable[[], Value], per: str = "epoch", *, saved: Literal[False]) -> None: ...

    def __init__(
        self,
        make: Callable[[], Any],
        per: str = "epoch",
        add: Callable[[list[Any]], Any] | None = None,
        *,
        saved: bool = True,
    ) -> None:
        self._make: Callable[[], Value] = make
        self._add, self._saved = add, saved
        self._per = require_one_of(per, "per", PERS)
        self._values: PerObject[Lifetime, Value] = PerObject()  # a value is collected together with its Lifetime
        self._by_hand = self.latest = self._make()  # of hooks that are called by hand, without a manager
        # By key: states that the program loaded before there was a manager, until their epoch or phase is open.
        self._waiting: dict[str, Any] = {}

    def of(self, train_manager: Any = None) -> Value:
        """Return the value of the epoch or phase that a TrainManager is in; without a manager, the one value."""
        find = getattr(train_manager, "_lifetime", None)
        if find is None:
            self.latest = self._by_hand
            return self.latest
        lifetime: Lifetime = find(self._per)
        value = self._values.get(lifetime)
        if value is None:
            value = self._values[lifetime] = self._load_value(self._waiting.pop(lifetime.key, None))
        self.latest = value
        return value

    def begin(self, train_manager: Any = None) -> Value:
        """Replace the value that ``of`` returns by a new one, as something shorter than the epoch or phase begins."""
        find = getattr(train_manager, "_lifetime", None)
        if find is None:
            self._by_hand = self._make()
        else:
            self._values.pop(find(self._per), None)
        return self.of(train_manager)

    def values(self) -> list[Value]:
        """Return the values of all open epochs or phases, and the one of hooks that are called by hand."""
        return [self._by_hand, *self._values.values()]

    def state_dict(self) -> dict[str, Any]:
        """Return the values of the open epochs or phases of the manager that is saved, by their keys."""
        if not self._saved:
            return {}
        lifetimes, ranks = _open_lifetimes.get()  # None: no manager saves it, so the program calls this by hand
        kept = [lifetime for lifetime in (lifetimes or {}).get(self._per, ()) if lifetime in self._values]
        states = {lifetime.key: _state_of(self._values[lifetime]) for lifetime in kept}
        if lifetimes is None:
            states = {"": _state_of(self.latest)}
        states = {key: state for key, state in states.items() if state}
        return states if self._add is None else state_of_ranks(ranks, states, self._add_by_key)

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore the values that ``state_dict`` returned, by their keys; values without a state begin anew."""
        lifetimes, ranks = _open_lifetimes.get()
        if self._add is not None:
            state = state_for_rank(ranks, state, self._add_by_key)
        if lifetimes is None:
            self._by_hand = self.latest = self._load_value(state.get(""))
            self._waiting = {} if self._per == "epoch" else dict(state)  # an epoch that opens later begins anew
        for lifetime in list(self._values) if lifetimes is None else lifetimes[self._per]:
            self._waiting.pop(lifetime.key, None)
            known = self._values.get(lifetime)
            self.latest = self._values[lifetime] = self._load_value(state.get(lifetime.key), known)

    def _add_by_key(self, states: list[dict[str, Any]]) -> dict[str, Any]:
        assert self._add is not None, "the callers look"
        keys = dict.fromkeys(key for of_rank in states for key in of_rank)
        return {key: self._add([of_rank[key] for of_rank in states if key in of_rank]) for key in keys}

    def _load_value(self, state: Any, known: Value | None = None) -> Value:
        # Loaded into the known value: an extension may hold it.
        value = self._make() if known is None or state is None else known
        if state is not None:
            cast(Stateful, value).load_state_dict(state)
        return value


def _state_of(value: Any) -> Any:
    return value.state_dict()


_open_lifetimes: ContextVar[tuple[Mapping[str, Iterable[Lifetime]] | None, Ranks]] = ContextVar(
    "train_manager_lifetimes", default=(None, ONE_PROCESS)
)


@contextmanager
def use_lifetimes(lifetimes: Mapping[str, Iterable[Lifetime]], ranks: Ranks) -> Iterator[None]:
    """Let books save or load the values of these lifetimes in a ``with`` block, with the values of all processes."""
    # An extension may be in several managers: only the values of the one that saves or loads are meant.
    token = _open_lifetimes.set((lifetimes, ranks))
    try:
        yield
    finally:
        _open_lifetimes.reset(token)
