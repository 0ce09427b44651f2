"""Which classes a model takes for which, in each evaluation."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from torch import Tensor

from train_manager.loop.evaluation_watcher import EvaluationWatcher
from train_manager.metrics.confusion import ConfusionCounts, TensorsByName, classified
from train_manager.rebuilding.recorded import recorded
from train_manager.reporting.confusion_svg import confusion_svg
from train_manager.reporting.embedded import shown_svg

if TYPE_CHECKING:
    from train_manager.manager import TrainManager
    from train_manager.runs.record.figure_writer import FigureWriter


@recorded
class ConfusionMatrix(EvaluationWatcher[ConfusionCounts, TensorsByName]):
    """Show which classes the model takes for which, with what it finds of each class.

    >>> from train_manager.testing import tiny_manager
    >>> confusion = ConfusionMatrix(["below", "above"])
    >>> result = tiny_manager(confusion, epochs=30).train()
    >>> confusion.matrices["valid"]
    [[16, 2], [0, 14]]

    A row is a true class, a column what the model has said: the largest of the numbers that ``prediction`` has for each
    class; of a single number, a logit, whether it is above 0. Examples whose target is not a class, as -100, are left
    out. ``confusion`` as the last line of a cell of a notebook shows the last matrix of each evaluation set.

    *Runs at:* the start and the end of ``eval_step_epoch``, and the end of ``eval_step_batch``.

    *Asks for:* ``prediction``, ``targets`` and ``datasource_name``; ``writer`` if there is one.

    *Leaves behind:* in ``metrics.sqlite`` the array ``confusion/valid`` of each evaluation.

    Args:
        names: those of the classes.

    Attributes:
        matrices: the last counts of each evaluation set.

    Raises:
        InputError: ``names`` is not a list; in an evaluation, prediction and targets are not of the shapes of a
            classification, or there are names, but not one for each class.
    """

    def __init__(self, names: Sequence[str] = ()) -> None:
        super().__init__(names, ConfusionCounts, TensorsByName)

    @property
    def matrices(self) -> dict[str, list[list[int]]]:
        return {name: counts.tolist() for name, counts in self._sets.latest.items()}

    def post_eval_step_batch(self, prediction: Any, targets: Tensor, train_manager: TrainManager | None = None) -> None:
        found = classified(prediction, targets, "ConfusionMatrix")
        self.require_a_name_for_each(found.classes)
        self._open.of(train_manager).append(found)

    def post_eval_step_epoch(
        self,
        datasource_name: str,
        train_manager: TrainManager | None = None,
        writer: FigureWriter | None = None,
    ) -> None:
        counts = self._open.of(train_manager).matrix()
        if counts is None:
            return
        self._sets.of(train_manager)[datasource_name] = counts
        if writer is not None:
            writer.array(f"confusion/{datasource_name}", counts, self.names or None)

    def _repr_html_(self) -> str:
        """Return the picture that a notebook shows."""
        return shown_svg(confusion_svg(self.matrices, self.names), "confusion matrices")
