"""The matrix of true and predicted classes, in each evaluation."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from torch import Tensor

from train_manager.data.shares import is_stand_in
from train_manager.loop.evaluation_watcher import EvaluationWatcher
from train_manager.loop.ranks import fold, ranks_of
from train_manager.metrics.classification import ConfusionCounts
from train_manager.rebuilding.recorded import recorded
from train_manager.reporting.evaluation_figures import confusion_figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from train_manager.manager import TrainManager
    from train_manager.runs.store.writer import MetricWriter


@recorded
class ConfusionMatrix(EvaluationWatcher[ConfusionCounts, Tensor]):
    """Show which classes the model confuses, and how well it finds each class.

    >>> from train_manager.testing import tiny_manager
    >>> confusion = ConfusionMatrix(["below", "above"])
    >>> result = tiny_manager(confusion, epochs=30).train()
    >>> confusion.matrices["valid"]
    [[16, 2], [0, 14]]

    A row is a true class, a column the class that the model has said: the class with the largest number in
    ``prediction``, or, if ``prediction`` has a single number, class 1 if the number is above 0, or above 0.5 if
    ``loss`` is ``nn.BCELoss`` or ``binary_cross_entropy``. Examples whose target is not a class, as -100, are left out.
    ``confusion`` as the last line of a cell of a notebook shows the last matrix of each evaluation set.

    *Runs at:* the start and the end of ``eval_step_epoch``, and the end of ``eval_step_batch``.

    *Asks for:* ``prediction``, ``targets``, ``true_batch_size`` and ``datasource_name``; ``writer`` if there is one.

    *Leaves behind:* in ``metrics.sqlite`` the array ``confusion/valid`` of each evaluation.

    Args:
        names: the names of the classes.

    Attributes:
        matrices: the last counts of each evaluation set.

    Raises:
        InputError: ``names`` is not a list; in an evaluation, prediction and targets are not of the shapes of a
            classification, or there are names, but not one for each class; or the targets of the first batch of a set
            are several labels for each example, or numbers of a regression.
    """

    sole = True  # two would write one series

    def __init__(self, names: Sequence[str] = ()) -> None:
        super().__init__(names, ConfusionCounts)

    @property
    def matrices(self) -> dict[str, list[list[int]]]:
        return {name: counts.tolist() for name, counts in self._sets.latest.items()}  # tolist() waits for the device

    def post_eval_step_batch(
        self,
        prediction: Any,
        targets: Tensor,
        train_manager: TrainManager | None = None,
        true_batch_size: int | Tensor = 1,
    ) -> None:
        if is_stand_in(true_batch_size):
            return
        # Counts stay on the device: nothing waits for it until somebody reads `matrices`.
        counts = self._open.of(train_manager)
        found = counts.reader.read(prediction, targets, getattr(train_manager, "loss", None))
        self.require_a_name_for_each(found.classes)
        counts.append(found)

    def post_eval_step_epoch(
        self,
        datasource_name: str,
        train_manager: TrainManager | None = None,
        writer: MetricWriter | None = None,
    ) -> None:
        found = self._open.of(train_manager)
        fold(ranks_of(train_manager), {"counts": found})
        found.reader.tell(train_manager)
        counts = found.matrix()
        if counts is None:  # all batches of the set were skipped
            return
        self._sets.of(train_manager)[datasource_name] = counts
        if writer is not None:
            writer.array(f"confusion/{datasource_name}", counts, self.names or None)

    def _pictures(self) -> dict[str, Figure]:
        return {"confusion matrices": confusion_figure(self.matrices, self.names)}
