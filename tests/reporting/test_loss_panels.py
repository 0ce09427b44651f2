"""The panels of loss curves: which there are, which curves they have, and on which scale."""

from __future__ import annotations

import math
from typing import Any

import pytest

from train_manager.metrics.windows import GrowingCurve
from train_manager.reporting.curves import Curves, new_curves
from train_manager.reporting.loss_panels import loss_panels
from train_manager.reporting.panels import Panel, scale_for


def curves(*losses: float) -> Curves:
    made = new_curves()
    for number, loss in enumerate(losses, 1):
        for curve in made.values():
            curve.append(number, loss)
    return made


def metric(*values: float) -> GrowingCurve:
    made = GrowingCurve()
    for epoch, value in enumerate(values, 1):
        made.append(epoch, value)
    return made


def panels_of(*given: Any) -> list[Panel]:
    return [panel for _, panels in loss_panels(*given).rows for panel in panels]


def test_the_loss_has_three_panels_and_each_metric_one() -> None:
    metrics = {name: {"valid": metric(0.1, 0.2)} for name in ("accuracy", "f1", "recall", "precision")}
    panels = panels_of(curves(2.0, 1.0), {"valid": curves(2.5, 1.5)}, metrics)

    assert [panel.y_label for panel in panels] == [
        "epoch loss",
        "batch loss",
        "batch loss",
        "accuracy",
        "f1",
        "recall",
        "precision",
    ]


def test_a_set_that_has_metrics_but_no_loss_is_drawn() -> None:
    picture = loss_panels(curves(1.0), {}, {"accuracy": {"test": metric(0.5)}})

    assert [name for name, _ in picture.legend] == ["training", "test"]
    assert picture.rows[1][1][0].lines[0].y == [0.5]


@pytest.mark.parametrize(
    ("deciding", "drawn", "scale"),
    [
        ([2.3, 0.05], [2.3, 0.01], "log"),
        ([2.3, 0.5], [2.3, 0.01], "linear"),  # the noise of single batches does not decide
        ([2.3, 0.05], [2.3, 0.0], "linear"),  # a loss of 0 could not be drawn
        ([2.3, -5.0], [2.3, -5.0], "linear"),
        ([2.3, math.nan, 0.05], [2.3, math.nan], "log"),
        ([math.inf, 1.0], [1.0], "linear"),
        ([math.nan], [math.nan], "linear"),
        ([], [], "linear"),
    ],
)
def test_the_scale_is_logarithmic_where_losses_span_a_wide_range(
    deciding: list[float], drawn: list[float], scale: str
) -> None:
    assert scale_for(deciding, drawn) == scale


def test_the_losses_have_one_scale() -> None:
    panels = panels_of(curves(2.3, 0.3, 0.01), {"valid": curves(2.3, 0.2, 0.02)})

    assert [(panel.x_label, panel.scale) for panel in panels] == [
        ("epochs", "log"),
        ("batches", "log"),
        ("examples seen", "log"),
    ]


def test_two_sets_never_look_alike() -> None:
    legend = loss_panels(curves(1, 2), {str(n): curves(1, 2) for n in range(12)}).legend

    assert len({(look["color"], look.get("linestyle"), look["marker"]) for _, look in legend}) == 13
