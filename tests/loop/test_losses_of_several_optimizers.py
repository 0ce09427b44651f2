"""Where ``loss`` is only the sum over several optimizers, tables, curves and records show the loss of each."""

from __future__ import annotations

import io
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.optim import SGD

from tests.support.training import Values
from train_manager import InputError, TrainManager
from train_manager.extensions import (
    Checkpoints,
    EarlyStopping,
    Log,
    LossCurves,
    LRSchedule,
    Metrics,
    MetricStore,
    ProgressBar,
)
from train_manager.metrics.history_rows import is_loss
from train_manager.runs.record.loss_curves import loss_curves
from train_manager.schedules import every
from train_manager.tools import read_run

NAMES = ("critic", "generator")
COLUMNS = ["losses/critic", "losses/generator"]


class Pair(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.critic, self.generator = nn.Linear(1, 1), nn.Linear(1, 1)

    def forward(self, inputs: Tensor) -> Tensor:
        return self.critic(self.generator(inputs))  # type: ignore[no-any-return]


class Gan(TrainManager):
    """The critic has the loss 1, 2, 3, ... in each batch, the generator 10 in every second batch."""

    def train_batch(self, model: Any, inputs: Tensor) -> None:
        value = float(self.step_num + 1)
        self.fixtures["prediction"] = model(inputs)
        self.update(model.critic(inputs).mean() * 0 + value, "critic")
        if value % 2 == 0:
            self.update(model.generator(inputs).mean() * 0 + 10, "generator")

    def eval_batch(self) -> None:
        self.fixtures["loss"] = torch.tensor(0.5)


class WithForward(Gan):
    def train_batch(self) -> None:  # type: ignore[override]
        loss = self.forward()
        self.backward(loss, "critic", retain_graph=True)
        self.backward(loss, "generator")
        for name in NAMES:
            self.step(name)


class WithOwnLoss(Gan):
    def train_batch(self, model: Any, inputs: Tensor) -> None:
        super().train_batch(model, inputs)
        self.fixtures["loss"] = torch.tensor(7.0)


def gan(*extensions: Any, kind: type[TrainManager] = Gan, **options: Any) -> TrainManager:
    """Return a training of four batches, of 2, 2, 4 and 4 examples, and an evaluation after it."""
    data = [torch.ones(size, 1) for size in (2, 2, 4, 4)]
    given: dict[str, Any] = {"loss": lambda prediction: prediction.mean(), "train_data": data, "eval_at": "epoch"}
    given |= {"eval_data": {"valid": data[:1]}, **options}
    optimizers = {name: lambda parameters: SGD(parameters, lr=0.1) for name in NAMES}
    return kind(model=Pair(), optimizer=optimizers, extensions=[*extensions], **given)


MEANS = {"losses/critic": (1 * 2 + 2 * 2 + 3 * 4 + 4 * 4) / 12, "losses/generator": 10.0}


def test_the_fixture_is_the_sum_and_is_what_train_on_batch_returns() -> None:
    losses = Values("post_train_step_batch", "loss")
    tm = gan(losses)
    tm.train()

    assert [loss.item() for loss in losses.seen] == [1, 12, 3, 14]
    assert tm.train_on_batch(torch.ones(2, 1)) == 5


def test_the_history_has_a_column_for_each_optimizer() -> None:
    tm = gan()
    tm.train()

    [row] = tm.history.by_epoch()
    assert {name: value for name, value in row.items() if is_loss(name)} == MEANS
    assert "losses/critic 2.833, losses/generator 10, valid loss 0.5" in repr(tm.history)


@pytest.mark.parametrize(("kind", "loss"), [(WithForward, None), (WithOwnLoss, 7.0)])
def test_a_loss_of_their_own_stays_the_column(kind: type[TrainManager], loss: float | None) -> None:
    log = io.StringIO()
    tm = gan(Log(file=log), kind=kind)
    tm.train()

    [row] = tm.history.epochs
    assert [name for name in row if is_loss(name)] == ["loss"]
    assert loss is None or row["loss"] == loss
    assert "losses" not in log.getvalue()
    assert tm.losses_by_optimizer == {}


def test_an_epoch_that_is_left_and_resumed_has_the_same_means() -> None:
    first = gan()
    first.train_steps(3)
    tm = gan()
    tm.load_state_dict(first.state_dict())
    tm.train_steps(1)

    [row] = tm.history.epochs[-1:]
    assert {name: row[name] for name in COLUMNS} == MEANS


def test_a_loss_that_is_not_finite_is_named_by_its_optimizer() -> None:
    class Broken(Gan):
        def train_batch(self, model: Any, inputs: Tensor) -> None:
            self.update(model.critic(inputs).mean() * float("nan"), "critic")

    with pytest.raises(ArithmeticError, match="the loss of 'critic' was nan in step 1"):
        gan(kind=Broken).train()


# ---- what is printed -------------------------------------------------------------------------------------------------


def test_the_lines_of_epochs_have_no_sum() -> None:
    file = io.StringIO()
    gan(Log(file=file)).train()

    header, names, line, _ = file.getvalue().splitlines()
    assert header.split() == ["training", "valid"]
    assert names.split() == ["epoch", "critic", "generator", "loss", "seconds"]
    assert line.split()[:4] == ["1", "2.833", "10.00", "0.5000"]


def test_the_lines_of_batches_have_no_sum() -> None:
    file = io.StringIO()
    gan(Log(every=2, rate=None, file=file)).train()

    assert file.getvalue().splitlines()[:-1] == [
        "step 2, epoch 1, batch 2 of 4, losses/critic 2, losses/generator 10",
        "step 4, epoch 1, batch 4 of 4, losses/critic 4, losses/generator 10",
        "step 4, epoch 1, valid: loss 0.5",
    ]


def test_the_bar_has_no_sum() -> None:
    terminal = io.StringIO()
    gan(ProgressBar(force=True, interval=0, file=terminal)).train()

    assert "losses/critic=4, losses/generator=10" in terminal.getvalue()
    assert " loss=" not in terminal.getvalue()


def test_the_table_of_metrics_has_no_sum() -> None:
    file, metrics = io.StringIO(), Values("post_train_step_batch", "metrics")
    gan(Metrics(train={"size": lambda prediction: prediction * 0}, table=True, file=file), metrics).train()

    table = [line.split()[0] for line in file.getvalue().splitlines()]
    assert table == ["metric", "losses/critic", "losses/generator", "size", "loss"]
    assert [*metrics.seen[1]] == [*COLUMNS, "moving_losses/critic", "size", "moving_losses/generator"]


# ---- curves and records ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("given", [{}, {"update": every(2)}])
def test_the_figure_has_a_curve_for_each_optimizer(given: Any, tmp_path: Path) -> None:
    curves = LossCurves(**given)
    gan(curves, train_dir=tmp_path).train()

    assert {by: curve.y for by, curve in curves.training.items()} == {"epoch": [], "batch": [], "example": []}
    critic, generator = (curves.parts.curves[name] for name in NAMES)
    assert (critic["batch"].y, critic["epoch"].y) == ([1, 2, 3, 4], [MEANS["losses/critic"]])
    assert (generator["batch"].x, generator["example"].x, generator["epoch"].y) == ([2, 4], [4, 12], [10])
    assert curves.eval_sets["valid"]["example"].x == [12]
    assert curves.metrics == {}


def test_the_store_has_each_loss_and_no_sum(tmp_path: Path) -> None:
    curves = LossCurves()
    gan(MetricStore(), curves, train_dir=tmp_path).train()

    reader = read_run(tmp_path).metrics
    found = {(series.stage, series.name): [*of.values] for series, of in reader.scalars().items()}
    names = {name for _, name in found if is_loss(name)}
    assert names == {"loss", *COLUMNS}
    assert [stage for stage, name in found if name == "loss"] == ["eval"]
    assert found["train_step_batch", "losses/critic"] == [1, 2, 3, 4]
    assert found["train_step_epoch", "losses/generator"] == [10]
    stored = loss_curves(reader)
    for name in NAMES:
        live = {by: (curve.x, curve.y) for by, curve in curves.parts.curves[name].items()}
        assert {by: (curve.x, curve.y) for by, curve in stored.eval_sets[f"{name} (part)"].items()} == live
    assert stored.metrics == {}


def test_batches_that_update_nothing_count_their_examples(tmp_path: Path) -> None:
    class Seldom(Gan):
        def train_batch(self, model: Any, inputs: Tensor) -> None:
            if self.step_num % 2:
                self.update(model.critic(inputs).mean() * 0 + 1, "critic")

    curves = LossCurves()
    gan(MetricStore(), curves, kind=Seldom, train_dir=tmp_path).train()

    live, stored = curves.parts.curves["critic"], loss_curves(read_run(tmp_path).metrics).eval_sets["critic (part)"]
    assert live["example"].x == stored["example"].x == [4, 12]
    assert live["epoch"].y == stored["epoch"].y == [1]


# ---- monitors --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "extension",
    [
        lambda: Log(monitor="train/loss", file=io.StringIO()),
        lambda: EarlyStopping("train/loss"),
        lambda: Checkpoints("best", monitor="train/loss"),
        lambda: LRSchedule(torch.optim.lr_scheduler.ReduceLROnPlateau, monitor="train/loss", optimizer="critic"),
    ],
)
def test_a_monitor_of_their_sum_is_told_the_columns(extension: Any, tmp_path: Path) -> None:
    made = extension()
    with pytest.raises(InputError) as caught:
        gan(made, train_dir=tmp_path).train()

    assert str(caught.value) == (
        f"{type(made).__name__} monitors 'train/loss', but eval_data has no set 'train'\n"
        "  its sets are 'valid'; the training has the losses 'losses/critic' and 'losses/generator', unless forward() "
        "makes one"
    )


def test_a_monitor_may_name_a_set_that_is_called_train() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        tm = gan(EarlyStopping("train/loss"), eval_data={"train": [torch.ones(2, 1)]})
        tm.train()

    assert tm.epoch_num == 1
