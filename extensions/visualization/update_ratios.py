"""The size of the updates of each layer beside its weights."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from torch.optim import Optimizer

from train_manager.loop.layer_watcher import LayerWatcher
from train_manager.loop.optimizers import SOLE
from train_manager.metrics.layer_series import changes_by_layer
from train_manager.model.optimizers import EveryStep
from train_manager.model.trained_layers import LayersOf
from train_manager.rebuilding.recorded import recorded
from train_manager.reporting.layer_figures import layers_figure
from train_manager.schedules import scheduled
from train_manager.validation import require_count

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from train_manager.manager import TrainManager
    from train_manager.runs.store.writer import MetricWriter

NAME: Final = "update_ratios"  # of the array in metrics.sqlite; with `/<optimizer>` if there are several


@recorded
class UpdateRatios(LayerWatcher):
    """Show how large the updates of each layer are beside its weights: often some 0.001 if the learning rate fits.

    >>> from train_manager.testing import tiny_manager
    >>> ratios = UpdateRatios(every=2)
    >>> result = tiny_manager(ratios, epochs=2).train()
    >>> [columns] = ratios.series.values()
    >>> [column.step for column in columns.rows]
    [2, 4, 6]

    It is the norm of the update of a layer over that of its weights before. ``ratios`` as the last line of a cell of a
    notebook shows the picture; a layer that was not updated is grey. Every 20th step of each optimizer copies its
    weights; the other steps cost nothing but the schedule of the hook.

    *Runs at:* around ``train_optimizer_step``, outside of other such hooks (priority -1000); the start of
    ``save_checkpoint``, and the end of ``train``, ``phase`` and ``run``.

    *Asks for:* ``optimizer``, ``optimizer_name``, ``step_num`` and ``true_batch_size``; ``writer`` if there is one.

    *Leaves behind:* in ``metrics.sqlite`` the array ``update_ratios``, of several optimizers ``update_ratios/critic``
    for each.

    Args:
        every: how many steps of an optimizer there are for each one that is looked at.

    Attributes:
        series: the numbers so far, by these names.

    Raises:
        InputError: ``every`` is not a whole number of at least 1.
    """

    sole = True  # two would write one series
    priority = -1000  # outermost: encloses the around hooks of other extensions, which may move the weights

    def __init__(self, every: int = 20) -> None:
        self.every: int = require_count(every, "every", at_least=1)
        super().__init__()
        self._layers = LayersOf()  # the layers of each optimizer, found once
        scheduled(self, "around_train_optimizer_step", EveryStep(self.every))

    def around_train_optimizer_step(
        self,
        optimizer: Optimizer,
        optimizer_name: str,
        step_num: int,
        true_batch_size: int,
        train_manager: TrainManager,
        writer: MetricWriter | None = None,
    ) -> Iterator[None]:
        parameters, labels, parts_of, *_ = self._layers.of(optimizer, train_manager.model)
        # An update is the difference of the weights, whatever made it: the optimizer, weight decay or a hook.
        before = [each.detach().clone() for each in parameters]
        yield
        ratios = changes_by_layer(parameters, before, parts_of, len(labels))
        series = self._series.of(train_manager)
        columns = series.of(NAME if optimizer_name == SOLE else f"{NAME}/{optimizer_name}", labels)
        if columns.append(ratios, step_num + 1, true_batch_size):
            series.send(writer)

    def _pictures(self) -> dict[str, Figure]:
        none = f"no update was looked at so far: one in {self.every} is"
        return {"the updates of each layer beside its weights, by step": layers_figure(self.series, none)}
