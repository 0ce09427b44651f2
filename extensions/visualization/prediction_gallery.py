"""The surest mistakes of each evaluation, and random examples beside them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from torch import Tensor

from train_manager.loop.evaluation_watcher import EvaluationWatcher
from train_manager.metrics.classification import Gallery, require_one_for_each
from train_manager.rebuilding.recorded import recorded
from train_manager.reporting.evaluation_figures import caption, gallery_figure
from train_manager.reporting.pictures import grid_of
from train_manager.validation import require_count

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from train_manager.manager import TrainManager
    from train_manager.runs.store.writer import MetricWriter


@recorded
class PredictionGallery(EvaluationWatcher[Gallery, dict[str, Tensor]]):
    """Show the mistakes of an evaluation in which the model is surest, and then random examples.

    >>> from train_manager.testing import tiny_manager
    >>> gallery = PredictionGallery(mistakes=4, others=2)
    >>> result = tiny_manager(gallery, epochs=2).train()
    >>> {name: tuple(values.shape) for name, values in gallery.examples["valid"].items()}["inputs"]
    (6, 2)

    The random examples are the same in each evaluation. Inputs are drawn as pictures, or as strips if they have one
    dimension. ``gallery`` as the last line of a cell of a notebook shows the examples of the last evaluations.

    *Runs at:* the start and the end of ``eval_step_epoch``, and the end of ``eval_step_batch``.

    *Asks for:* ``inputs``, ``prediction``, ``targets`` and ``datasource_name``; ``writer`` if there is one.

    *Leaves behind:* with a ``MetricStore`` the picture ``plots/gallery-valid-<step>.png`` of each evaluation, and the
    predictions as the text ``gallery/valid``.

    Args:
        names: the names of the classes.
        mistakes: how many mistakes at most.
        others: how many random examples.

    Attributes:
        examples: of each evaluation set ``inputs``, what the model ``said``, what is ``true``, how ``sure`` it was, and
            their ``place`` in the set.

    Raises:
        InputError: ``names`` is not a list; a number is not a whole number of at least 1; in an evaluation, the
            inputs are not a tensor, the prediction and targets are not those of a classification, or there are names,
            but not one for each class.
    """

    sole = True  # two would write one series
    ranks = 0

    def __init__(self, names: Sequence[str] = (), mistakes: int = 16, others: int = 16) -> None:
        self.mistakes: int = require_count(mistakes, "mistakes", at_least=1)
        self.others: int = require_count(others, "others", at_least=1)
        super().__init__(names, lambda: Gallery(self.mistakes, self.others))

    @property
    def examples(self) -> dict[str, dict[str, Tensor]]:
        return self._sets.latest

    def post_eval_step_batch(
        self, inputs: Any, prediction: Any, targets: Any, train_manager: TrainManager | None = None
    ) -> None:
        gallery = self._open.of(train_manager)
        found = gallery.reader.read(prediction, targets, getattr(train_manager, "loss", None))
        self.require_a_name_for_each(found.classes)
        require_one_for_each(inputs, len(found.said), "PredictionGallery")
        # Only the candidates of the gallery are kept, not the whole set.
        gallery.append(inputs, found)

    def post_eval_step_epoch(
        self,
        datasource_name: str,
        train_manager: TrainManager | None = None,
        writer: MetricWriter | None = None,
    ) -> None:
        # This waits for the device, once for each set.
        gallery = self._open.of(train_manager)
        gallery.reader.tell(train_manager)
        examples = gallery.examples()
        if not examples:  # all batches of the set were skipped
            return
        self._sets.of(train_manager)[datasource_name] = examples
        if writer is not None:
            writer.image(f"gallery/{datasource_name}", grid_of(examples["inputs"]))
            captions = (", ".join(caption(examples, number, self.names)) for number in range(len(examples["said"])))
            writer.text(f"gallery/{datasource_name}", "\n".join(captions))

    def _pictures(self) -> dict[str, Figure]:
        return {"examples with what the model said of them": gallery_figure(self.examples, self.names)}
