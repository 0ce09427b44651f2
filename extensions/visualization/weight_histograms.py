"""Histograms of the weights of each layer, and of its gradients if asked for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from torch.optim import Optimizer

from train_manager.loop.books import Book
from train_manager.loop.drawing import Drawing
from train_manager.metrics.histogram import Histograms
from train_manager.model.layers import layers_of
from train_manager.model.optimizers import EveryStep
from train_manager.rebuilding.recorded import recorded
from train_manager.reporting.layer_figures import histograms_figure
from train_manager.schedules import every as every_opening
from train_manager.schedules import scheduled
from train_manager.telling.errors import InputError
from train_manager.validation import require_count

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from train_manager.manager import TrainManager
    from train_manager.runs.store.writer import MetricWriter


@recorded
class WeightHistograms(Drawing):
    """Show how the weights of each layer are distributed, and its gradients too with ``gradients=True``.

    >>> from train_manager.testing import tiny_manager
    >>> weights = WeightHistograms(every=3)
    >>> result = tiny_manager(weights).train()
    >>> list(weights.histograms)
    ['weights/0 Linear', 'weights/2 Linear']

    The histograms are counted on the device, and nothing waits for it. ``weights`` as the last line of a cell of a
    notebook shows the last histograms: each row is a layer, bright where most of its numbers are.

    *Runs at:* the end of ``train_step_batch``; with gradients also the start of ``train_optimizer_step``, before they
    are clipped (priority 5), which opens the inner stages of each batch.

    *Asks for:* with gradients ``optimizer`` and ``optimizer_name``; ``writer`` if there is one.

    *Leaves behind:* in ``metrics.sqlite`` the histograms ``weights/<layer>`` and ``gradients/<layer>``.

    Args:
        gradients: whether to count gradients too.
        every: how many steps there are for each one that is looked at.

    Attributes:
        histograms: the last edges and counts, by these names.

    Raises:
        InputError: ``gradients`` is neither True nor False; ``every`` is not a whole number of at least 1.
    """

    sole = True  # two would write one series
    priority = 5  # gradients as GradientNorms sees them: unscaled, and not clipped yet

    def __init__(self, gradients: bool = False, every: int = 500) -> None:
        if not isinstance(gradients, bool):
            cure = f"how many steps there are for each look is `every`: WeightHistograms(every={gradients!r:.60})"
            what = f"gradients must be True or False, but is {gradients!r:.60}"
            raise InputError(what, name="gradients", cure=cure)
        self.gradients = gradients
        self.every: int = require_count(every, "every", at_least=1)
        self._last = Book(Histograms, per="phase")  # edges and counts on the device, of a phase apart
        scheduled(self, "post_train_step_batch", every_opening(self.every))
        # Without need this hook is left out: a hook of an inner
        # stage makes the loop open all inner stages of each batch.
        if gradients:
            self.pre_train_optimizer_step = self._count_gradients
            scheduled(self, "pre_train_optimizer_step", EveryStep(self.every))

    @property
    def histograms(self) -> dict[str, tuple[list[float], list[int]]]:
        return {name: (edges.tolist(), counts.tolist()) for name, (edges, counts) in self._last.latest.items()}

    def post_train_step_batch(self, train_manager: TrainManager, writer: MetricWriter | None = None) -> None:
        for label, parameters in layers_of(train_manager.model):
            self._last.of(train_manager).count(f"weights/{label}", parameters, writer)

    def _count_gradients(  # the hook pre_train_optimizer_step: see __init__
        self,
        optimizer: Optimizer,
        optimizer_name: str,
        train_manager: TrainManager,
        writer: MetricWriter | None = None,
    ) -> None:
        for label, parameters in layers_of(train_manager.model, optimizer):
            # A layer that had no part in the loss has no gradients.
            there = [parameter.grad for parameter in parameters if parameter.grad is not None]
            if there:
                self._last.of(train_manager).count(f"gradients/{label}", there, writer)

    def _pictures(self) -> dict[str, Figure]:
        none = f"no step was looked at so far: one in {self.every} is"
        return {"how the weights of each layer are distributed": histograms_figure(self.histograms, none)}

    def state_dict(self) -> dict[str, Any]:
        """Return the last histograms."""
        return {**super().state_dict(), "last": self._last.state_dict()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore what ``state_dict`` returned."""
        super().load_state_dict(state)
        self._last.load_state_dict(state["last"])
