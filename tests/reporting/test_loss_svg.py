"""The picture of loss curves: which panels it has, and which curves they have."""

from __future__ import annotations

import re

from tests.support.fork_server import ForkServer
from tests.support.programs import code
from train_manager.metrics.windows import Curve
from train_manager.reporting.curves import Curves, new_curves
from train_manager.reporting.loss_svg import loss_svg


def curves(*losses: float) -> Curves:
    made = new_curves()
    for number, loss in enumerate(losses, 1):
        for curve in made.values():
            curve.append(number, loss)
    return made


def metric(*values: float) -> Curve:
    made = Curve()
    for epoch, value in enumerate(values, 1):
        made.append(epoch, value)
    return made


def names_of_axes(text: str) -> list[str]:
    return re.findall(r"rotate\(-90\)\"[^>]*>([^<]+)<", text)


def test_the_loss_has_three_panels_and_each_metric_one() -> None:
    metrics = {name: {"valid": metric(0.1, 0.2)} for name in ("accuracy", "f1", "recall", "precision")}
    text = loss_svg(curves(2.0, 1.0), {"valid": curves(2.5, 1.5)}, metrics)

    assert names_of_axes(text) == ["loss"] * 3 + ["accuracy", "f1", "recall", "precision"]


def test_a_training_without_a_point_has_empty_panels() -> None:
    assert names_of_axes(loss_svg(new_curves(), {}, {})) == ["loss"] * 3


def test_a_set_that_has_metrics_but_no_loss_is_drawn() -> None:
    assert ">test</text>" in loss_svg(curves(1.0), {}, {"accuracy": {"test": metric(0.5)}})


def test_no_matplotlib_is_imported_for_it(fork_server: ForkServer) -> None:
    program = (
        "import sys\n"
        "from train_manager.reporting.curves import new_curves\n"
        "from train_manager.reporting.loss_svg import loss_svg\n"
        "loss_svg(new_curves(), {}, {})\n"
        "print('matplotlib' in sys.modules)"
    )
    done = fork_server.run(code, program)

    assert (done.output, done.errors) == ("False\n", "")
