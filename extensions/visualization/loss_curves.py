"""The loss as curves: by epoch, by batch and by number of examples, in a picture that is renewed during the training.

The losses of the training are recorded without waiting for the device. ``reporting/curves.py`` thins the curves, and
``reporting/loss_figure.py`` draws them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torch import Tensor

from train_manager.core.decorators import always
from train_manager.core.extension import Extension
from train_manager.core.schedule import Schedule
from train_manager.metrics.deferred import DeferredScalars, numbers
from train_manager.records.files import replace_file
from train_manager.reporting.curves import Curves, PartCurves, loaded_curves, new_curves
from train_manager.reporting.loss_figure import draw, rendered, require_matplotlib
from train_manager.schedules import scheduled

if TYPE_CHECKING:
    from matplotlib.figure import Figure

NAME = "loss_curves"


class LossCurves(Extension):
    """Draw the loss of the training and of every evaluation set: by epoch, by batch, and by number of examples.

    >>> import pathlib, tempfile
    >>> from train_manager.testing import tiny_manager
    >>> curves = LossCurves()
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     result = tiny_manager(curves, epochs=2, train_dir=folder).train()
    ...     sorted(file.name for file in pathlib.Path(folder, "plots").iterdir())
    ['loss_curves.png', 'loss_curves.svg']
    >>> curves.eval_sets["valid"]["epoch"].x
    [0.0, 1.0, 2.0]

    Each loss that a model adds with ``add_loss``, and each head of ``WeightedLosses``, has a curve of its own. In a
    notebook, ``curves`` as the last line of a cell shows the picture. Above some thousand points a curve shows the
    means of neighbouring points.

    An evaluation in the middle of an epoch is a point by batch and by example, not by epoch; an evaluation that is a
    run of its own is left out.

    *Runs at:* the start and the end of ``train_step_epoch``, and the end of ``train_step_batch``, ``eval`` and
    ``train``; around ``train_step_batch`` if ``update`` is given.

    *Asks for:* ``loss``, ``losses``, ``true_batch_size``, ``step_num``, ``epoch_num``, ``eval_results``,
    ``standalone_eval`` and ``train_dir``, without which it is refused.

    *Leaves behind:* ``train_dir/plots/loss_curves.png`` and ``.svg``, renewed after every evaluation (after every
    epoch, if nothing is evaluated) or as ``update`` says, and at the end of the training.

    Args:
        update: a schedule of training steps that renews the files: ``every(50)``, or ``periodically(60)`` for once a
            minute. It does not change what is recorded.

    Attributes:
        training: the curves of the training by "epoch", by "batch" and by "example".
        eval_sets: the curves of each evaluation set.
        parts: the curves of the parts of the loss, by name.

    Raises:
        ImportError: matplotlib is missing.
        HookError: ``update`` is not a schedule.
    """

    def __init__(self, update: Schedule | None = None) -> None:
        require_matplotlib()
        self.training = new_curves()
        self.eval_sets: dict[str, Curves] = {}
        self.parts = PartCurves()
        self._losses = DeferredScalars()  # the losses of steps that are not in the curves yet
        self._steps: list[tuple[int, int]] = []  # their step_num and batch size
        self._examples = 0
        self._epoch_sum = self._epoch_weight = 0.0
        self._epoch: int | None = None  # the epoch that is open, counted from 1
        self._is_drawn = True
        self._has_schedule = update is not None
        if update is not None:  # else without the hook, which costs a little time in each step
            self.around_train_step_batch = self._draw_after_step
            scheduled(self, "around_train_step_batch", update)

    # ---- recording -------------------------------------------------------------------------------------------------

    def pre_train_step_epoch(self, epoch_num: int, train_dir: Path) -> None:
        if not self._has_schedule:
            self._draw_once(train_dir)  # the epoch before, if no evaluation has drawn it
        self._epoch_sum = self._epoch_weight = 0.0
        self._epoch = epoch_num + 1
        self.parts.begin_epoch()

    def post_train_step_batch(
        self, loss: Tensor, losses: Mapping[str, Tensor], step_num: int, true_batch_size: int
    ) -> None:
        self.parts.append(losses, step_num, true_batch_size)
        is_full = self._losses.append(loss)
        self._steps.append((step_num, true_batch_size))
        self._is_drawn = False
        if is_full:
            self._take_losses()

    def post_train_step_epoch(self, epoch_num: int) -> None:
        self._take_losses()
        is_whole = epoch_num == self._epoch  # False if the run was stopped within the epoch
        self._epoch = None
        if is_whole and self._epoch_weight:
            self.training["epoch"].append(epoch_num, self._epoch_sum / self._epoch_weight)
            self.parts.end_epoch(epoch_num)

    def post_eval(
        self,
        eval_results: Mapping[str, Mapping[str, float]],
        epoch_num: int,
        step_num: int,
        standalone_eval: bool,
        train_dir: Path,
    ) -> None:
        if standalone_eval:  # not part of the training
            return
        self._take_losses()
        with_loss = {name: result for name, result in eval_results.items() if "loss" in result}  # an own eval_batch
        for name, result in with_loss.items():
            curves = self.eval_sets.setdefault(name, new_curves())
            if self._epoch is None:
                curves["epoch"].append(epoch_num, result["loss"])
            curves["batch"].append(step_num, result["loss"])
            curves["example"].append(self._examples, result["loss"])
        self._is_drawn = False
        if not self._has_schedule:
            self._draw_once(train_dir)

    @always
    def post_train(self, train_dir: Path) -> None:
        self._epoch = None
        self._draw_once(train_dir)

    def _take_losses(self) -> None:
        """Move the deferred losses into the curves, with one copy from the device for all of them."""
        steps, self._steps = self._steps, []
        sizes = numbers([size for _, size in steps])
        for loss, (step, _), examples in zip(self._losses.take(), steps, sizes, strict=True):
            self._examples += examples
            self._epoch_sum += loss * examples
            self._epoch_weight += examples
            self.training["batch"].append(step, loss)
            self.training["example"].append(self._examples, loss)

    def _draw_after_step(self, train_dir: Path) -> Iterator[None]:  # the hook around_train_step_batch: see __init__
        yield
        self._draw_once(train_dir)

    # ---- showing ---------------------------------------------------------------------------------------------------

    def figure(self) -> Figure:
        """Return the curves so far as a figure of matplotlib."""
        self._take_losses()
        self.parts.take()
        parts = {f"{name} (part)": curves for name, curves in self.parts.curves.items()}
        return draw(self.training, {**self.eval_sets, **parts})

    def _repr_png_(self) -> bytes:
        """Return the picture that a notebook shows."""
        return rendered(self.figure(), "png")

    def _draw_once(self, train_dir: Path) -> None:
        if self._is_drawn:
            return
        for kind in ("png", "svg"):
            replace_file(train_dir / "plots" / f"{NAME}.{kind}", rendered(self.figure(), kind))
        self._is_drawn = True

    # ---- saved state -----------------------------------------------------------------------------------------------

    def state_dict(self) -> dict[str, Any]:
        """Return all that is recorded, as plain lists and numbers."""
        self._take_losses()
        return {
            **super().state_dict(),
            "training": {by: curve.state_dict() for by, curve in self.training.items()},
            "eval_sets": {
                name: {by: curve.state_dict() for by, curve in curves.items()}
                for name, curves in self.eval_sets.items()
            },
            "parts": self.parts.state_dict(),
            "examples": self._examples,
            "epoch_sum": self._epoch_sum,
            "epoch_weight": self._epoch_weight,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore what ``state_dict`` returned."""
        super().load_state_dict(state)
        self._losses.take()
        self._steps.clear()
        self.training = loaded_curves(state["training"])
        self.eval_sets = {name: loaded_curves(curves) for name, curves in state["eval_sets"].items()}
        self.parts.load_state_dict(state["parts"])
        self._examples = state["examples"]
        self._epoch_sum, self._epoch_weight = state["epoch_sum"], state["epoch_weight"]
