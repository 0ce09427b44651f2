"""The size of the gradients of each layer, in every update."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from torch.optim import Optimizer

from train_manager.loop.layer_watcher import LayerWatcher
from train_manager.loop.optimizers import SOLE
from train_manager.loop.windows import require_no_closure
from train_manager.metrics.layer_series import norms_of
from train_manager.model.trained_layers import LayersOf
from train_manager.rebuilding.recorded import recorded
from train_manager.reporting.layer_figures import layers_figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from train_manager.manager import TrainManager
    from train_manager.runs.store.writer import MetricWriter

NAME: Final = "gradient_norms"  # of the array in metrics.sqlite; with `/<optimizer>` if there are several


@recorded
class GradientNorms(LayerWatcher):
    """Show how large the gradients of each layer are: they vanish in dark rows, and explode in bright ones.

    >>> from train_manager.testing import tiny_manager
    >>> norms = GradientNorms()
    >>> result = tiny_manager(norms, epochs=2).train()
    >>> [columns] = norms.series.values()
    >>> columns.labels, len(columns.rows)
    (['0 Linear', '2 Linear'], 6)

    ``norms`` as the last line of a cell of a notebook shows the picture; in a script, ``norms.save("norms.svg")``
    writes it. It has root mean squares, so that small and large layers can be compared: the norm of a layer's gradients
    divided by the square root of the number of values. A layer without a gradient is grey. ``series`` has plain norms.

    Nothing waits for the device but one copy for 64 updates. After 1,000 updates each number stands for two of them,
    after 500 more such for four, and so on: the mean and the largest.

    *Runs at:* the start of ``train_optimizer_step``, when gradients are accumulated and unscaled, and before they are
    clipped (priority 5); the start of ``save_checkpoint``, and the end of ``train``, ``phase`` and ``run``.

    *Asks for:* ``optimizer``, ``optimizer_name``, ``step_num`` and ``true_batch_size``; ``writer`` if there is one.

    *Leaves behind:* in ``metrics.sqlite`` the array ``gradient_norms``, of several optimizers
    ``gradient_norms/critic`` for each, with ``_largest`` and ``_counts`` beside it.

    Attributes:
        series: the numbers so far, by these names.

    Raises:
        InputError: in training, an optimizer requires a closure.
    """

    sole = True  # two would write one series
    priority = 5  # after Accumulate (-20) and MixedPrecision (-10), before ClipGradients (10)

    def __init__(self) -> None:
        super().__init__()
        self._layers = LayersOf()  # the layers of each optimizer, found once

    def pre_train_optimizer_step(
        self,
        optimizer: Optimizer,
        optimizer_name: str,
        step_num: int,
        true_batch_size: int,
        train_manager: TrainManager,
        writer: MetricWriter | None = None,
    ) -> None:
        # A closure computes further gradients within the step.
        require_no_closure(optimizer, optimizer_name, "GradientNorms")
        layers, series = self._layers.of(optimizer, train_manager.model), self._series.of(train_manager)
        # `layers[1:4]`: labels, the layer of each parameter, and the count of numbers in each layer.
        columns = series.of(NAME if optimizer_name == SOLE else f"{NAME}/{optimizer_name}", *layers[1:4])
        # The norms stay on their device; `append` says when enough are there for one copy to the host.
        if columns.append(norms_of([each.grad for each in layers.parameters]), step_num + 1, true_batch_size):
            series.send(writer)

    def _pictures(self) -> dict[str, Figure]:
        return {"the gradients of each layer by step": layers_figure(self.series, "no gradient was seen so far")}
