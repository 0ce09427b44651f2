from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import nn

from train_manager import add_loss, every
from train_manager.extensions import LossCurves, Metrics, MetricStore
from train_manager.metrics.windows import GrowingCurve
from train_manager.runs.record.loss_curves import loss_curves
from train_manager.runs.store.reader import MetricReader
from train_manager.testing import tiny_manager
from train_manager.tools import read_run


def accuracy(prediction: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    return prediction.argmax(dim=1) == targets


class Adds(nn.Linear):
    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        add_loss(self.weight.abs().mean(), "sparsity")
        return super().forward(inputs)


def points(curve: GrowingCurve) -> list[tuple[float, float]]:
    return [(x, round(y, 12)) for x, y in zip(curve.x, curve.y, strict=True)]


@pytest.mark.parametrize("eval_at", ["epoch", every(2)])
def test_the_curves_are_those_of_loss_curves(tmp_path: Path, eval_at: str) -> None:
    curves = LossCurves()
    vars(curves)["_draw_once"] = lambda *_: None
    extensions = [MetricStore(), curves, Metrics(accuracy)]
    model = nn.Sequential(nn.Flatten(), Adds(2, 2))
    tm = tiny_manager(*extensions, model=model, epochs=4, eval_at=eval_at, train_dir=tmp_path)
    tm.train()
    if eval_at == "epoch":
        tm.train_steps(2)
    found = loss_curves(MetricReader(tmp_path))

    curves.figure()
    parts = {f"{name} (part)": curve for name, curve in curves.parts.curves.items()}
    for ours, theirs in ((found.training, curves.training), *zip(
        found.eval_sets.values(), {**curves.eval_sets, **parts}.values(), strict=True
    )):  # fmt: skip
        assert {by: points(curve) for by, curve in ours.items()} == {by: points(curve) for by, curve in theirs.items()}
    assert {name: list(of) for name, of in found.metrics.items()} == {
        name: list(of) for name, of in curves.metrics.items()
    }


def test_the_figure_is_drawn_of_a_run_that_is_gone(tmp_path: Path) -> None:
    tiny_manager(MetricStore(), epochs=2, train_dir=tmp_path).train()

    assert len(read_run(tmp_path).loss_curves().axes) == 3
