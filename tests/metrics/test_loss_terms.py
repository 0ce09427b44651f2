"""Loss terms as metrics: ``Metrics("losses")``."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from train_manager import InMemory, InputError, WeightedLosses, add_loss
from train_manager.extensions import Checkpoints, Log, Metrics, MetricStore, RunRecord
from train_manager.testing import tiny_manager
from train_manager.tools import read_run


def penalized(prediction: Tensor, targets: Tensor) -> Tensor:
    add_loss(0.1 * prediction.square().mean(), "size")
    return F.cross_entropy(prediction, targets)


def named(name: str) -> Any:
    def loss(prediction: Tensor, targets: Tensor) -> Tensor:
        add_loss(prediction.square().mean(), name)
        return F.cross_entropy(prediction, targets)

    return loss


class Heads(nn.Linear):
    def forward(self, inputs: Tensor) -> Any:
        outputs = super().forward(inputs)
        return {"above": outputs, "sum": outputs.sum(dim=1)}


def heads() -> WeightedLosses:
    return WeightedLosses({"above": F.cross_entropy, "sum": (lambda sums, y: F.mse_loss(sums, y.float()), 0.5)})


def test_each_loss_term_has_a_column_in_the_history() -> None:
    tm = tiny_manager(Metrics("losses"), loss=penalized)
    tm.train()
    assert list(tm.history.epochs[-1]) == ["epoch", "step", "seconds", "loss", "size"]


def test_each_head_has_a_column_with_its_loss_without_its_weight() -> None:
    tm = tiny_manager(Metrics("losses"), model=Heads(2, 2), loss=heads())
    tm.train()
    row = tm.history.epochs[-1]
    assert row["above"] + 0.5 * row["sum"] == pytest.approx(row["loss"])


def test_a_loss_term_of_an_evaluation_is_the_mean_over_its_examples() -> None:
    x, y = torch.rand(40, 2), torch.ones(40).long()
    tm = tiny_manager(Metrics("losses"), loss=penalized, eval_data={"valid": InMemory(x, y, batch_size=16)})
    found = tm.eval()["valid"]["size"]
    with torch.no_grad():
        assert found == pytest.approx(0.1 * tm.model(x).square().mean().item())


def test_a_function_of_the_losses_alone_measures_the_same() -> None:
    tm = tiny_manager(Metrics("losses", again=lambda losses: losses["size"]), loss=penalized)
    tm.train()
    assert tm.history.epochs[-1]["again"] == tm.history.epochs[-1]["size"] > 0


def test_loss_terms_are_in_the_lines_and_in_the_record(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    extensions = [Metrics("losses"), Log(), MetricStore(), RunRecord()]
    tm = tiny_manager(extensions=extensions, loss=penalized, train_dir=tmp_path)
    tm.train()
    assert "size" in capsys.readouterr().out
    assert read_run(tmp_path).history.epochs[-1]["size"] == tm.history.epochs[-1]["size"]


def test_loss_terms_of_an_epoch_resume_to_the_bit(tmp_path: Path) -> None:
    def epochs(count: int, folder: Path) -> list[Mapping[str, Any]]:
        tm = tiny_manager(Metrics("losses"), Checkpoints(resume=True), loss=penalized, epochs=count, train_dir=folder)
        tm.train()
        return [{**row, "seconds": 0} for row in tm.history.epochs]

    epochs(1, tmp_path / "twice")
    assert epochs(2, tmp_path / "twice") == epochs(2, tmp_path / "once")


def test_a_loss_term_that_is_called_as_another_metric_is_refused() -> None:
    with pytest.raises(InputError) as caught:
        tiny_manager(Metrics("accuracy", "losses"), loss=named("accuracy")).train()
    assert str(caught.value).splitlines() == [
        "a loss term and another metric are called 'accuracy'",
        "  give the loss term another name",
    ]


def test_a_loss_term_that_is_called_as_a_place_is_refused() -> None:
    told = "a loss term is called 'step', but in the history 'step' tells where or how a row was measured"
    with pytest.raises(InputError, match=told):
        tiny_manager(Metrics("losses"), loss=named("step")).train()
