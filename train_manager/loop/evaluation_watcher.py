"""The base of extensions that look at the examples of evaluations: what they have found in each set, and its state."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Generic, TypeVar

from train_manager.core.extension import Extension
from train_manager.loop.books import Book, Stateful
from train_manager.reporting.values import plural
from train_manager.telling.errors import InputError

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

    Raises:
        InputError: ``names`` is a single text, or nothing that has names in it.
    """

    def __init__(self, names: Sequence[str], looking: Callable[[], Looking], found: Callable[[], Found]) -> None:
        if isinstance(names, str) or not isinstance(names, Iterable):
            cure = f"give a list with a name for each class, or leave it out: {type(self).__name__}()"
            raise InputError(f"names must be a list of names, but is {names!r:.60}", name="names", cure=cure)
        self.names = [str(name) for name in names]
        self._open = Book(looking, per="phase")
        self._sets = Book(found, per="phase")

    def pre_eval_step_epoch(self, train_manager: Any = None) -> None:
        self._open.begin(train_manager)

    def require_a_name_for_each(self, classes: int) -> None:
        """Refuse names, if there are any, that are more or fewer than the classes of the predictions.

        Raises:
            InputError: they are.
        """
        if self.names and len(self.names) != classes:
            asked_by = type(self).__name__
            what = f"{asked_by} was given {plural(len(self.names), 'name')}, but predictions are of {classes} classes"
            raise InputError(what, name="names", asked_by=asked_by, cure="give a name for each class, or none")

    def state_dict(self) -> dict[str, Any]:
        """Return what was found in the last evaluation of each set."""
        return {**super().state_dict(), "sets": self._sets.state_dict()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore what ``state_dict`` returned."""
        super().load_state_dict(state)
        self._sets.load_state_dict(state["sets"])
