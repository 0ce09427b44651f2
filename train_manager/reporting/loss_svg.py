"""The picture of loss curves as an SVG file, which needs no matplotlib."""

from __future__ import annotations

from collections.abc import Mapping

from train_manager.metrics.windows import Curve
from train_manager.reporting.curves import Curves, MetricCurves
from train_manager.reporting.loss_figure import (
    AXES,
    NOISY_LOOK,
    TRAINING_LOOK,
    common_scale,
    legend_columns,
    looks,
    loss_label,
)
from train_manager.reporting.svg_figure import Line, Look, Panel, svg
from train_manager.reporting.values import short_name

LOSS_HEIGHT, METRIC_HEIGHT = 360, 240  # pixels of a panel
PANELS_IN_A_ROW = 3


def loss_svg(training: Curves, eval_sets: Mapping[str, Curves], metrics: MetricCurves, is_of_rank: bool = False) -> str:
    """Return the losses by epoch, by batch and by example, and below them a panel for each metric.

    Args:
        training: the curves of the training.
        eval_sets: the curves of the evaluation sets, by name.
        metrics: for each metric its curves by epoch, by "training" and by the names of evaluation sets.
        is_of_rank: the losses of batches are of the rows of rank 0.
    """
    # Evaluation sets without a loss get the colours after the sets with a loss.
    measured = [name for curves in metrics.values() for name in curves if name != "training"]
    look_of = dict(zip(dict.fromkeys([*eval_sets, *measured]), looks(), strict=False))
    scale = common_scale([training, *eval_sets.values()])
    losses = [_loss_panel(by, loss_label(by, is_of_rank), scale, training, eval_sets) for by in AXES]
    panels = [_metric_panel(name, curves, {"training": TRAINING_LOOK, **look_of}) for name, curves in metrics.items()]
    below = [panels[first : first + PANELS_IN_A_ROW] for first in range(0, len(panels), PANELS_IN_A_ROW)]
    rows = [(LOSS_HEIGHT, losses), *((METRIC_HEIGHT, row) for row in below)]
    legend = [("training", TRAINING_LOOK), *look_of.items()]
    return svg(rows, legend, legend_columns([short_name(name) for name, _ in legend]))


def _loss_panel(by: str, label: str, scale: str, training: Curves, eval_sets: Mapping[str, Curves]) -> Panel:
    own = TRAINING_LOOK if by == "epoch" else {**TRAINING_LOOK, **NOISY_LOOK}
    lines = [Line(own, training[by].x, training[by].y)]
    lines += [Line(look, of[by].x, of[by].y) for of, look in zip(eval_sets.values(), looks(), strict=False)]
    return Panel(AXES[by], label, scale, lines)


def _metric_panel(name: str, curves: Mapping[str, Curve], look_of: Mapping[str, Look]) -> Panel:
    lines = [Line(look_of[of], curve.x, curve.y) for of, curve in curves.items()]
    return Panel(AXES["epoch"], name, "linear", lines)
