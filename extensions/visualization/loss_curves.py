"""The loss as curves, by epoch, by batch and by number of examples, and metrics by epoch, in one picture.

The losses of the training are recorded without waiting for the device. ``metrics/windows.py`` keeps the curves short,
and ``reporting/svg.py`` draws them.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torch import Tensor

from train_manager.core.declarations import always
from train_manager.core.extension import Extension
from train_manager.core.schedule import Schedule
from train_manager.core.stage import Stage
from train_manager.data.shares import ALONE
from train_manager.files.atomic import replace_file
from train_manager.loop.batch_losses import MOST, BatchLosses, BatchRow, detach_terms, picks_batches
from train_manager.loop.books import Book
from train_manager.metrics.deferred import detach_scalar, numbers, read_scalars
from train_manager.metrics.history_rows import is_loss
from train_manager.metrics.windows import GrowingCurve
from train_manager.rebuilding.recorded import recorded
from train_manager.reporting.curves import Curves, PartCurves, PartSums, load_curve, load_curves, new_curves
from train_manager.reporting.figures import panels_figure, render_figure
from train_manager.reporting.loss_panels import loss_panels, part_label
from train_manager.reporting.panels import Panels
from train_manager.reporting.svg import svg
from train_manager.schedules import scheduled

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from train_manager.manager import TrainManager

NAME = "loss_curves"
GAP = 100  # from one drawing to the next: at least so many times the seconds that the last drawing took
FIRST_DRAWING = 0.05  # the seconds that the first drawing is taken to need
FIRST_PNG = 1.0  # the same with png=True, which imports matplotlib


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

    Below the three panels of the loss each metric has a panel, by epoch: the metrics that hooks add to ``eval_result``
    and to ``train_result``, as ``Metrics`` does. Each loss that a model adds with ``add_loss``, and each head of
    ``WeightedLosses``, has a curve of its own; so has each of several optimizers, in place of a loss that is only their
    sum. In a notebook, ``curves`` as the last line of a cell shows the picture. Above 1,000 points a curve shows
    the means of neighbouring points. The SVG file is light or dark as the page that shows it, and is drawn
    without matplotlib.

    An evaluation in the middle of an epoch is a point by batch and by example, not by epoch; an evaluation that is a
    run of its own is left out.

    *Runs at:* the start and the end of ``run``, ``train`` and ``train_step_epoch``, and the end of ``eval``; around
    ``train_step_batch`` if ``update`` is given. With a schedule, or in a loop without ``batch_losses``, it
    records at the end of ``train_step_batch``.

    *Asks for:* ``batch_losses``, or else ``loss``, ``losses`` and ``true_batch_size`` of a batch; ``start_step`` if
    there is one; ``step_num``, ``epoch_num``, ``train_result``, ``eval_results``, ``standalone_eval``, ``stage`` and
    ``train_dir``, without which it is refused.

    *Leaves behind:* ``train_dir/plots/loss_curves.svg``, and ``.png`` if ``png`` is given, drawn as a run ends that
    has trained more than one batch, also after an error or Ctrl-C; and in between after epochs and evaluations, so
    rarely that drawing takes at most 1 % of the time, or as ``update`` says.

    Args:
        update: a schedule of training steps that renews the files, at any cost: ``every(50)``, or ``periodically(60)``
            for once a minute. The recorded values stay the same.
        png: draw a PNG file with matplotlib too, which takes a second or two as the run ends.

    Attributes:
        training: the curves of the training by "epoch", by "batch" and by "example".
        eval_sets: the curves of each evaluation set.
        parts: the curves of the loss terms, by name.
        metrics: for each metric its curves by epoch: of "training", and of each evaluation set.

    Raises:
        HookError: ``update`` is not a schedule.
    """

    sole = True
    ranks = 0

    def __init__(self, update: Schedule | None = None, *, png: bool = False) -> None:
        self.png = png
        self.training = new_curves()
        self.eval_sets: dict[str, Curves] = {}
        self.parts = PartCurves()
        self.metrics: dict[str, dict[str, GrowingCurve]] = {}
        self._is_of_rank = False  # several processes have trained together: losses of batches are of rank 0's rows
        self._is_reader = False  # the loop appends the rows, and not the hook post_train_step_batch
        self._rows: list[BatchRow] = []  # rows of batches that are not in the curves yet
        self._examples = 0  # the number of examples up to the last row in the curves
        self._parts_of_epoch = Book(PartSums)  # sums of the loss terms over the open epoch
        self._manager: TrainManager | None = None  # while a run is open
        self._done = 0  # epochs that were completed as the present one began
        # _is_drawn: the files have all recorded values. _has_trained:
        # from the start of a training call to the run's end.
        self._is_drawn, self._has_trained = True, False
        self._drawn_at: float | None = None  # when the last drawing ended, or the first training began
        self._drawing_seconds = FIRST_PNG if png else FIRST_DRAWING
        self._has_schedule = update is not None
        if update is not None:  # a hook of each batch costs time, so there is none without need
            self.around_train_step_batch = self._draw_after_step
            scheduled(self, "around_train_step_batch", update)

    # ---- recording -------------------------------------------------------------------------------------------------

    def pre_run(self, batch_losses: BatchLosses | None = None, train_manager: TrainManager | None = None) -> None:
        self._manager = train_manager
        self._is_of_rank = self._is_of_rank or (train_manager is not None and train_manager.ranks.place is not ALONE)
        self._is_reader = batch_losses is not None and not picks_batches(self, LossCurves)
        if batch_losses is not None and self._is_reader:
            batch_losses.read(self, self._rows, look=self._take_losses)

    def pre_train(self) -> None:
        self._take_losses()  # rows of train_on_batch before this training call, which are of none of its epochs
        self._has_trained = True
        if self._drawn_at is None:
            self._drawn_at = time.monotonic()

    def pre_train_step_epoch(self, epoch_num: int, train_dir: Path) -> None:
        self._draw_seldom(train_dir)
        self._done = epoch_num

    def post_train_step_batch(
        self, losses: Mapping[str, Tensor], step_num: int, true_batch_size: int, loss: Tensor | None = None
    ) -> None:
        if self._is_reader:  # the loop has appended the row of this batch
            return
        is_sum = self._manager is not None and bool(self._manager.losses_by_optimizer)
        # With several optimizers `loss` is only their sum; `losses` has the loss of each of them.
        kept = None if is_sum or loss is None else detach_scalar(loss)
        self._rows.append((kept, step_num, true_batch_size, 0.0, "", detach_terms(losses)))
        if len(self._rows) >= MOST:  # each row occupies memory of the GPU
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
        stage: Stage,
        train_manager: TrainManager | None = None,
    ) -> None:
        if standalone_eval:  # a run of its own is not part of the training
            return
        self._take_losses()
        is_within = "train_step_epoch" in stage.path
        # train_steps(n) may end within an epoch, and a loop without train() may
        # evaluate there: then no stage of an epoch is open, but the epoch is.
        if train_manager is not None:
            is_within = is_within or train_manager._progress.is_within_epoch
        for name, result in eval_results.items():
            if not is_within:
                self._add_metrics(name, epoch_num, result)
            if "loss" not in result:  # an eval_batch of the user's own may set none
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
        self._take_losses()  # also after an error: now the open epoch is still the one that the rows belong to
        self._draw_seldom(train_dir)

    @always
    def post_run(
        self, train_dir: Path, step_num: int = 0, start_step: int = 0, batch_losses: BatchLosses | None = None
    ) -> None:
        if batch_losses is not None:
            batch_losses.end(self)
        has_trained, self._has_trained = self._has_trained or step_num - start_step > 1, False
        # A run of one batch may be one of many calls of train_on_batch, which would draw the files each.
        if has_trained:
            self._draw_once(train_dir)
        self._manager = None

    def _add_metrics(self, of: str, epoch_num: int, result: Mapping[str, float]) -> None:
        for name, value in result.items():
            if not is_loss(name):
                self.metrics.setdefault(name, {}).setdefault(of, GrowingCurve()).append(epoch_num, value)

    def _take_losses(self) -> None:
        """Move the losses of the rows into the curves, with one copy from the device for all of them."""
        rows = list(self._rows)
        self._rows.clear()  # not a new list: `batch_losses` appends to this one
        self._is_drawn = self._is_drawn and not rows
        losses = iter(read_scalars([loss for loss, *_ in rows if loss is not None]))
        sizes = numbers([size for _, _, size, *_ in rows])
        terms = []
        for examples, (kept, step, _, _, _, parts) in zip(sizes, rows, strict=True):
            self._examples += examples
            terms.append((step, self._examples, examples, parts or {}))
            if kept is not None:  # None: several optimizers, or a train_batch without a loss
                loss = next(losses)
                self.training["batch"].append(step, loss)
                self.training["example"].append(self._examples, loss)
        self.parts.take(terms, self._parts_of_epoch.of(self._manager))

    def _draw_after_step(self, train_dir: Path) -> Iterator[None]:  # the hook around_train_step_batch: see __init__
        yield
        self._draw_once(train_dir)

    # ---- showing ---------------------------------------------------------------------------------------------------

    def figure(self) -> Figure:
        """Return the curves so far as a figure of matplotlib."""
        return panels_figure(self._panels())

    def _repr_png_(self) -> bytes:
        """Return the picture that a notebook shows."""
        return render_figure(self.figure(), "png")

    def _panels(self) -> Panels:
        """Take all losses that are deferred, and return the picture."""
        self._take_losses()
        parts = {part_label(name, self._is_of_rank): curves for name, curves in self.parts.curves.items()}
        return loss_panels(self.training, {**self.eval_sets, **parts}, self.metrics, self._is_of_rank)

    def _draw_seldom(self, train_dir: Path) -> None:
        """Draw if the time since the last drawing is long beside the time that it took."""
        waited = time.monotonic() - (self._drawn_at or 0.0)
        if not self._has_schedule and waited >= GAP * self._drawing_seconds:
            self._draw_once(train_dir)

    def _draw_once(self, train_dir: Path) -> None:
        self._take_losses()
        if self._is_drawn:
            return
        began = time.monotonic()
        replace_file(train_dir / "plots" / f"{NAME}.svg", svg(self._panels()).encode())
        if self.png:
            replace_file(train_dir / "plots" / f"{NAME}.png", render_figure(self.figure(), "png"))
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
            **({"is_of_rank": True} if self._is_of_rank else {}),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore what ``state_dict`` returned."""
        super().load_state_dict(state)
        self._rows.clear()
        self.training = load_curves(state["training"])
        self.eval_sets = {name: load_curves(curves) for name, curves in state["eval_sets"].items()}
        self.parts.load_state_dict(state["parts"])
        self.metrics = {
            name: {of: load_curve(curve) for of, curve in curves.items()} for name, curves in state["metrics"].items()
        }
        self._examples = state["examples"]
        self._is_of_rank = self._is_of_rank or state.get("is_of_rank", False)
        self._parts_of_epoch.load_state_dict(state["parts_of_epochs"])
        self._is_drawn = False  # the files may show another state than the checkpoint
