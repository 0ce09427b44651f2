"""Statistics of the outputs of layers: the shares of dead and of saturated units, and the spread of the outputs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from torch import nn

from train_manager.loop.layer_watcher import LayerWatcher
from train_manager.model.activations import Activations, require_not_compiled
from train_manager.rebuilding.recorded import recorded
from train_manager.reporting.layer_figures import activation_figures
from train_manager.schedules import every as every_opening
from train_manager.schedules import scheduled
from train_manager.validation import require_count

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from train_manager.manager import TrainManager
    from train_manager.runs.store.writer import MetricWriter


@recorded
class ActivationStatistics(LayerWatcher):
    """Show the shares of dead and of saturated outputs of each layer, and how far its outputs spread.

    >>> from train_manager.testing import tiny_manager
    >>> statistics = ActivationStatistics(every=2)
    >>> result = tiny_manager(statistics, epochs=2).train()
    >>> {name: columns.labels for name, columns in statistics.series.items()}
    {'activation_spread': ['0 Linear', '1 ReLU', '2 Linear'], 'dead_units': ['1 ReLU']}

    The first 4 examples of a batch are looked at. A unit of a ``ReLU``, or of another module that cuts off below 0, is
    dead if it is 0 for all of them; a number of ``Tanh``, ``Sigmoid`` and the like is saturated if it is within 2 % of
    an end of their range. The spread is the standard deviation of all numbers. Of a module that returns several
    tensors, such as an ``LSTM``, the first one counts. Functions such as ``F.relu`` are not modules, and are not seen.
    Modules in eval mode, or not called, are grey. ``statistics`` as the last line of a cell of a notebook shows the
    pictures. Where several processes train together, rank 0 alone looks.

    *Runs at:* around ``train_model_forward``; the start of ``run`` and of ``save_checkpoint``, and the end of
    ``train``, ``phase`` and ``run``.

    *Asks for:* ``model``, ``step_num`` and ``true_batch_size``; ``writer`` if there is one.

    *Leaves behind:* in ``metrics.sqlite`` the arrays ``activation_spread``, ``dead_units`` and ``saturated``.

    Args:
        every: how many batches there are for each one that is looked at.

    Attributes:
        series: the numbers so far, by these names.

    Raises:
        InputError: ``every`` is not a whole number of at least 1; in training, the model is compiled, or several
            processes train with strategy "fsdp".
    """

    sole = True  # two would write one series
    ranks = 0
    needs_whole_model = True  # it looks into the model, which strategy "fsdp" of Distributed shards

    def __init__(self, every: int = 20) -> None:
        self.every: int = require_count(every, "every", at_least=1)
        super().__init__()
        # In batches between two looks the hook is not called at all.
        scheduled(self, "around_train_model_forward", every_opening(self.every))

    def pre_run(self, model: nn.Module) -> None:
        # torch.compile leaves out the forward hooks that come after it, so that nothing would be seen.
        require_not_compiled(model, "ActivationStatistics")

    def around_train_model_forward(
        self,
        model: nn.Module,
        step_num: int,
        true_batch_size: int,
        train_manager: TrainManager,
        writer: MetricWriter | None = None,
    ) -> Iterator[None]:
        require_not_compiled(model, "ActivationStatistics")  # a phase may bring a model of its own
        # An around hook: the forward hooks must be there while the
        # model runs, and be gone after it, also after an error.
        with Activations(train_manager.model) as activations:
            yield
        series, is_full = self._series.of(train_manager), False
        for name, (labels, vector) in activations.vectors().items():
            # Vectors stay on their device; one copy brings many.
            is_full |= series.of(name, labels).append(vector, step_num + 1, true_batch_size)
        if is_full:
            series.send(writer)

    def _pictures(self) -> dict[str, Figure]:
        none = f"no batch was looked at so far: one in {self.every} is"
        figures = activation_figures(self.series, none)
        return {f"{name} of each layer by step": figure for name, figure in figures.items()}
