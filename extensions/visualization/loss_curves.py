"""The loss as curves, by epoch, by batch and by number of examples, and metrics by epoch, in one picture.

The losses of the training are recorded without waiting for the device. ``reporting/curves.py`` thins the curves, and
``reporting/loss_svg.py`` draws them.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torch import Tensor

from train_manager.core.decorators import always, replaced_by
from train_manager.core.extension import Extension
from train_manager.core.hooks import replacement_of
from train_manager.core.schedule import Schedule
from train_manager.core.scope import Scope
from train_manager.files.atomic import replace_file
from train_manager.loop.batch_losses import MOST, BatchLosses, BatchRow, kept_parts
from train_manager.loop.books import Book
from train_manager.metrics.deferred import kept_scalar, numbers, read_scalars
from train_manager.metrics.history_rows import is_loss
from train_manager.rebuilding.recorded import recorded
from train_manager.reporting.curves import Curve, Curves, PartCurves, PartSums, loaded_curve, loaded_curves, new_curves
from train_manager.reporting.loss_figure import draw, rendered
from train_manager.reporting.loss_svg import loss_svg
from train_manager.schedules import scheduled

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from train_manager.manager import TrainManager

NAME = "loss_curves"
GAP = 100  # at least so many times the last drawing pass before the next one
FIRST_DRAWING = 0.05  # seconds that it is taken to need
FIRST_PNG = 1.0  # the same with the import of matplotlib


@recorded
class LossCurves(Extension):
    """Draw the loss of the training and of every evaluation set, by epoch, batch and example; and metrics by epoch.

    >>> import pathlib, tempfile
    >>> from train_manager.testing import tiny_manager
    >>> curves = LossCurves()
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     result = tiny_manager(curves, epochs=2, train_dir=folder).train()
    ...     sorted(file.name for file in pathlib.Path(folder, "plots").iterdir())
    ['loss_curves.svg']
    >>> curves.eval_sets["valid"]["epoch"].x
    [0.0, 1.0, 2.0]

    Below the three panels of the loss each metric has a panel, by epoch: what hooks add to ``eval_result`` and to
    ``train_result``, as ``Metrics`` does. Each loss that a model adds with ``add_loss``, and each head of
    ``WeightedLosses``, has a curve of its own; so has each of several optimizers, in place of a loss that is only their
    sum. In a notebook, ``curves`` as the last line of a cell shows the picture. Above some thousand points a curve
    shows the means of neighbouring points. The SVG file is light or dark as the page that shows it, and is drawn
    without matplotlib.

    An evaluation in the middle of an epoch is a point by batch and by example, not by epoch; an evaluation that is a
    run of its own is left out.

    *Runs at:* the start and the end of ``run``, ``train`` and ``train_step_epoch``, and the end of ``eval``; around
    ``train_step_batch`` if ``update`` is given. With a schedule, or in a loop without ``batch_losses``, at the end of
    ``train_step_batch`` too.

    *Asks for:* ``batch_losses``, or else ``loss``, ``losses`` and ``true_batch_size`` of a batch; ``start_step`` if
    there is one; ``step_num``, ``epoch_num``, ``train_result``, ``eval_results``, ``standalone_eval``, ``stage`` and
    ``train_dir``, without which it is refused.

    *Leaves behind:* ``train_dir/plots/loss_curves.svg``, and ``.png`` if ``png`` is given, drawn as a run ends that
    has trained more than one batch, also after an error or Ctrl-C; and in between after epochs and evaluations, so
    rarely that drawing takes at most 1 % of the time, or as ``update`` says.

    Args:
        update: a schedule of training steps that renews the files, at any cost: ``every(50)``, or ``periodically(60)``
            for once a minute. It does not change what is recorded.
        png: draw a PNG file with matplotlib too, which takes a second or two as the run ends.

    Attributes:
        training: the curves of the training by "epoch", by "batch" and by "example".
        eval_sets: the curves of each evaluation set.
        parts: the curves of the parts of the loss, by name.
        metrics: for each metric its curves by epoch: of "training", and of each evaluation set.

    Raises:
        HookError: ``update`` is not a schedule.
    """

    def __init__(self, update: Schedule | None = None, *, png: bool = False) -> None:
        self.png = png
        self.training = new_curves()
        self.eval_sets: dict[str, Curves] = {}
        self.parts = PartCurves()
        self.metrics: dict[str, dict[str, Curve]] = {}
        self._rows: list[BatchRow] = []  # of batches that are not in the curves yet
        self._examples = 0
        self._parts_of_epoch = Book(PartSums)
        self._manager: TrainManager | None = None  # while a run is open
        self._done = 0  # epochs that were completed as the present one began
        self._is_drawn, self._has_trained = True, False
        self._drawn_at: float | None = None  # when the last drawing ended, or the first training began
        self._drawing_seconds = FIRST_PNG if png else FIRST_DRAWING
        self._has_schedule = update is not None
        if update is not None:  # else without the hook, which costs a little time in each step
            self.around_train_step_batch = self._draw_after_step
            scheduled(self, "around_train_step_batch", update)

    # ---- recording -------------------------------------------------------------------------------------------------

    def pre_run(self, batch_losses: BatchLosses | None = None, train_manager: TrainManager | None = None) -> None:
        self._manager = train_manager
        if batch_losses is not None and replacement_of(self, "post_train_step_batch"):
            batch_losses.read(self, self._rows, look=self._take_losses)

    def pre_train(self) -> None:
        self._take_losses()  # of train_on_batch, which are of no epoch of this call
        self._has_trained = True
        if self._drawn_at is None:
            self._drawn_at = time.monotonic()

    def pre_train_step_epoch(self, epoch_num: int, train_dir: Path) -> None:
        self._draw_seldom(train_dir)
        self._done = epoch_num

    @replaced_by("batch_losses")
    def post_train_step_batch(
        self,
        loss: Tensor,
        losses: Mapping[str, Tensor],
        step_num: int,
        true_batch_size: int,
    ) -> None:
        is_sum = self._manager is not None and bool(self._manager.losses_by_optimizer)
        kept = None if is_sum else kept_scalar(loss)
        self._rows.append((kept, step_num, true_batch_size, 0.0, "", kept_parts(losses)))
        if len(self._rows) >= MOST:
            self._take_losses()

    def post_train_step_epoch(self, epoch_num: int, train_result: Mapping[str, float]) -> None:
        self._take_losses()
        if epoch_num == self._done:  # the run was stopped within the epoch
            return
        if "loss" in train_result:
            self.training["epoch"].append(epoch_num, train_result["loss"])
        self.parts.end_epoch(epoch_num, self._parts_of_epoch.of(self._manager))
        self._add_metrics("training", epoch_num, train_result)

    def post_eval(
        self,
        eval_results: Mapping[str, Mapping[str, float]],
        epoch_num: int,
        step_num: int,
        standalone_eval: bool,
        train_dir: Path,
        stage: Scope,
        train_manager: TrainManager | None = None,
    ) -> None:
        if standalone_eval:  # not part of the training
            return
        self._take_losses()
        is_within = "train_step_epoch" in stage.path
        if train_manager is not None:  # the call may end, or an own loop evaluate, where an epoch does not
            is_within = is_within or train_manager._progress.is_within_epoch
        for name, result in eval_results.items():
            if not is_within:
                self._add_metrics(name, epoch_num, result)
            if "loss" not in result:  # of an own eval_batch
                continue
            curves = self.eval_sets.setdefault(name, new_curves())
            if not is_within:
                curves["epoch"].append(epoch_num, result["loss"])
            curves["batch"].append(step_num, result["loss"])
            curves["example"].append(self._examples, result["loss"])
        self._is_drawn = False
        self._draw_seldom(train_dir)

    @always
    def post_train(self, train_dir: Path) -> None:
        self._take_losses()  # after an error, while its epoch is the one that they are of
        self._draw_seldom(train_dir)

    @always
    def post_run(
        self, train_dir: Path, step_num: int = 0, start_step: int = 0, batch_losses: BatchLosses | None = None
    ) -> None:
        if batch_losses is not None:
            batch_losses.end(self)
        has_trained, self._has_trained = self._has_trained or step_num - start_step > 1, False
        if has_trained:  # else train_on_batch, each call of which may be a run
            self._draw_once(train_dir)
        self._manager = None

    def _add_metrics(self, of: str, epoch_num: int, result: Mapping[str, float]) -> None:
        for name, value in result.items():
            if not is_loss(name):
                self.metrics.setdefault(name, {}).setdefault(of, Curve()).append(epoch_num, value)

    def _take_losses(self) -> None:
        """Move the losses of the rows into the curves, with one copy from the device for all of them."""
        rows = list(self._rows)
        self._rows.clear()  # not a new list: the rows to come go to this one
        self._is_drawn = self._is_drawn and not rows
        losses = iter(read_scalars([loss for loss, *_ in rows if loss is not None]))
        sizes = numbers([size for _, _, size, *_ in rows])
        for examples, (kept, step, _, _, _, parts) in zip(sizes, rows, strict=True):
            self._examples += examples
            self.parts.append(parts or {}, step, examples)
            if kept is not None:  # an own train_batch may have none, or one of several optimizers only
                loss = next(losses)
                self.training["batch"].append(step, loss)
                self.training["example"].append(self._examples, loss)
        self.parts.take(self._parts_of_epoch.of(self._manager))

    def _draw_after_step(self, train_dir: Path) -> Iterator[None]:  # the hook around_train_step_batch: see __init__
        yield
        self._draw_once(train_dir)

    # ---- showing ---------------------------------------------------------------------------------------------------

    def figure(self) -> Figure:
        """Return the curves so far as a figure of matplotlib."""
        return draw(self.training, self._sets_and_parts(), self.metrics)

    def _repr_png_(self) -> bytes:
        """Return the picture that a notebook shows."""
        return rendered(self.figure(), "png")

    def _sets_and_parts(self) -> dict[str, Curves]:
        """Take all losses that are deferred, and return the curves beside those of the training."""
        self._take_losses()
        return {**self.eval_sets, **{f"{name} (part)": curves for name, curves in self.parts.curves.items()}}

    def _draw_seldom(self, train_dir: Path) -> None:
        """Draw if the time since the last drawing is long beside what that took."""
        waited = time.monotonic() - (self._drawn_at or 0.0)
        if not self._has_schedule and waited >= GAP * self._drawing_seconds:
            self._draw_once(train_dir)

    def _draw_once(self, train_dir: Path) -> None:
        self._take_losses()
        if self._is_drawn:
            return
        began = time.monotonic()
        picture = loss_svg(self.training, self._sets_and_parts(), self.metrics)
        replace_file(train_dir / "plots" / f"{NAME}.svg", picture.encode())
        if self.png:
            replace_file(train_dir / "plots" / f"{NAME}.png", rendered(self.figure(), "png"))
        self._is_drawn, self._drawn_at = True, time.monotonic()
        self._drawing_seconds = self._drawn_at - began

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
            "metrics": {
                name: {of: curve.state_dict() for of, curve in curves.items()} for name, curves in self.metrics.items()
            },
            "examples": self._examples,
            "parts_of_epochs": self._parts_of_epoch.state_dict(),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore what ``state_dict`` returned."""
        super().load_state_dict(state)
        self._rows.clear()
        self.training = loaded_curves(state["training"])
        self.eval_sets = {name: loaded_curves(curves) for name, curves in state["eval_sets"].items()}
        self.parts.load_state_dict(state["parts"])
        self.metrics = {
            name: {of: loaded_curve(curve) for of, curve in curves.items()}
            for name, curves in state.get("metrics", {}).items()
        }
        self._examples = state["examples"]
        before = {"": state["parts"].get("of_epoch", {})}  # of a checkpoint of an earlier version
        self._parts_of_epoch.load_state_dict(state.get("parts_of_epochs", before))
        self._is_drawn = False  # the files may be older than the checkpoint
