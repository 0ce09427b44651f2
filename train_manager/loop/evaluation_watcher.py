"""The base of extensions that look at the examples of evaluations: what they have found in each set, and its state."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Generic, TypeVar

from train_manager.core.extension import Extension
from train_manager.loop.books import Book, Stateful

Looking = TypeVar("Looking", bound=Stateful)
Found = TypeVar("Found", bound=Stateful)


class EvaluationWatcher(Extension, Generic[Looking, Found]):
    """Look at the examples of each evaluation, and keep what was found in the last one of each set.

    A subclass appends batches to ``self._open.of(train_manager)``, and puts what that has come to into
    ``self._sets.of(train_manager)`` as the evaluation of a set ends.

    *Runs at:* the start of ``eval_step_epoch``.

    Args:
        names: those of the classes.
        looking: makes what gathers the batches of one evaluation.
        found: makes what keeps the last results by the names of evaluation sets.
    """

    def __init__(self, names: Sequence[str], looking: Callable[[], Looking], found: Callable[[], Found]) -> None:
        self.names = [str(name) for name in names]
        self._open = Book(looking, per="phase")
        self._sets = Book(found, per="phase")

    def pre_eval_step_epoch(self, train_manager: Any = None) -> None:
        self._open.begin(train_manager)

    def state_dict(self) -> dict[str, Any]:
        """Return what was found in the last evaluation of each set."""
        return {**super().state_dict(), "sets": self._sets.state_dict()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore what ``state_dict`` returned."""
        super().load_state_dict(state)
        self._sets.load_state_dict(state["sets"])
