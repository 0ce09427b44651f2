"""The base of extensions that look at the examples of evaluations, and keep a result for each evaluation set."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Generic, TypeVar, final

from train_manager.loop.books import Book
from train_manager.loop.drawing import Drawing
from train_manager.reporting.values import plural
from train_manager.telling.errors import InputError

Looking = TypeVar("Looking")
Found = TypeVar("Found")


@final
class BySet(dict[str, Found]):
    """A result for each evaluation set, by its name: what a checkpoint holds of the evaluations."""

    def state_dict(self) -> dict[str, Found]:
        """Return all results."""
        return dict(self)

    def load_state_dict(self, state: Mapping[str, Found]) -> None:
        """Restore what ``state_dict`` returned."""
        self.clear()
        self.update(state)


class EvaluationWatcher(Drawing, Generic[Looking, Found]):
    """Look at the examples of each evaluation, and keep the result of the last evaluation of each set.

    A subclass appends batches to ``self._open.of(train_manager)``, and puts the result into
    ``self._sets.of(train_manager)`` as the evaluation of a set ends.

    *Runs at:* the start of ``eval_step_epoch``.

    Args:
        names: the names of the classes.
        looking: makes the object that gathers the batches of one evaluation.

    Raises:
        InputError: ``names`` is a single text, or nothing that has names in it.
    """

    def __init__(self, names: Sequence[str], looking: Callable[[], Looking]) -> None:
        if isinstance(names, str) or not isinstance(names, Iterable):
            cure = f"give a list with a name for each class, or leave it out: {type(self).__name__}()"
            raise InputError(f"names must be a list of names, but is {names!r:.60}", name="names", cure=cure)
        self.names = [str(name) for name in names]
        # Not saved: an evaluation that ends early begins anew, and so does the object, for each set.
        self._open = Book(looking, per="phase", saved=False)
        self._sets: Book[BySet[Found]] = Book(BySet, per="phase")

    def pre_eval_step_epoch(self, train_manager: Any = None) -> None:
        # At the start of a set, not at its end: an evaluation that fails half-way leaves the batches of its set behind.
        self._open.begin(train_manager)

    def require_a_name_for_each(self, classes: int) -> None:
        """Refuse names, if there are any, that are more or fewer than the classes of the predictions.

        Raises:
            InputError: there are more or fewer names than classes.
        """
        if self.names and len(self.names) != classes:
            asked_by = type(self).__name__
            what = f"{asked_by} was given {plural(len(self.names), 'name')}, but predictions are of {classes} classes"
            raise InputError(what, name="names", asked_by=asked_by, cure="give a name for each class, or none")

    def state_dict(self) -> dict[str, Any]:
        """Return the result of the last evaluation of each set."""
        return {**super().state_dict(), "sets": self._sets.state_dict()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore what ``state_dict`` returned."""
        super().load_state_dict(state)
        self._sets.load_state_dict(state["sets"])
