"""The panels of loss curves: the losses by epoch, by batch and by example, and below them each metric."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

from train_manager.reporting.panels import TRAINING_LOOK, Line, Look, Panel, Panels, in_rows, looks, scale_for
from train_manager.reporting.values import short_name

if TYPE_CHECKING:
    from train_manager.metrics.windows import GrowingCurve
    from train_manager.reporting.curves import Curves, MetricCurves

AXES: Final = {"epoch": "epochs", "batch": "batches", "example": "examples seen"}
NOISY_LOOK: Final = {"linewidth": 0.8, "alpha": 0.8}  # of the curves of single batches
LOSS_HEIGHT, METRIC_HEIGHT = 360, 240  # pixels of a panel
EPOCH_LOSS: Final = "epoch loss"  # the mean over the examples of an epoch
BATCH_LOSS: Final = "batch loss"  # of the examples of one batch
ROWS_OF_RANK_0: Final = "rows of rank 0"
"""What the losses of batches are of if several processes train together; epochs and evaluations are of all rows."""


def loss_panels(
    training: Curves, eval_sets: Mapping[str, Curves], metrics: MetricCurves | None = None, is_of_rank: bool = False
) -> Panels:
    """Return the losses by epoch, by batch and by example, and below them a panel for each metric.

    Args:
        training: the curves of the training.
        eval_sets: the curves of the evaluation sets, by name.
        metrics: for each metric its curves by epoch, by "training" and by the names of evaluation sets.
        is_of_rank: the losses of batches are of the rows of rank 0.
    """
    metrics = metrics or {}
    # Evaluation sets without a loss get the colours after the sets with a loss.
    measured = [name for curves in metrics.values() for name in curves if name != "training"]
    look_of = dict(zip(dict.fromkeys([*eval_sets, *measured]), looks(), strict=False))
    scale = _common_scale([training, *eval_sets.values()])
    losses = [_loss_panel(by, loss_label(by, is_of_rank), scale, training, eval_sets) for by in AXES]
    panels = [_metric_panel(name, curves, {"training": TRAINING_LOOK, **look_of}) for name, curves in metrics.items()]
    legend = [("training", TRAINING_LOOK), *((short_name(name), look) for name, look in look_of.items())]
    return Panels([(LOSS_HEIGHT, losses), *in_rows(METRIC_HEIGHT, panels)], legend)


def loss_label(by: str, is_of_rank: bool) -> str:
    """Return the label of the losses in a panel by "epoch", "batch" or "example"."""
    if by == "epoch":
        return EPOCH_LOSS
    return f"{BATCH_LOSS} ({ROWS_OF_RANK_0})" if is_of_rank else BATCH_LOSS


def part_label(name: str, is_of_rank: bool) -> str:
    """Return the label of a loss term, whose means over epochs are made of those of its batches."""
    return f"{name} (part, {ROWS_OF_RANK_0})" if is_of_rank else f"{name} (part)"


def _common_scale(sets: Sequence[Curves]) -> str:
    """Return the scale for all panels; the smooth curves by epoch decide it, once they have points."""
    smooth = [y for curves in sets for y in curves["epoch"].y]
    drawn = [y for curves in sets for curve in curves.values() for y in curve.y]
    return scale_for(smooth or drawn, drawn)


def _loss_panel(by: str, label: str, scale: str, training: Curves, eval_sets: Mapping[str, Curves]) -> Panel:
    own = TRAINING_LOOK if by == "epoch" else {**TRAINING_LOOK, **NOISY_LOOK}
    lines = [Line(own, training[by].x, training[by].y)]
    lines += [Line(look, of[by].x, of[by].y) for of, look in zip(eval_sets.values(), looks(), strict=False)]
    return Panel(AXES[by], label, scale, lines)


def _metric_panel(name: str, curves: Mapping[str, GrowingCurve], look_of: Mapping[str, Look]) -> Panel:
    lines = [Line(look_of[of], curve.x, curve.y) for of, curve in curves.items()]
    return Panel(AXES["epoch"], name, "linear", lines)
