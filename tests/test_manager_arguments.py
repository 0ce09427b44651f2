"""What a manager does with its arguments: keywords only, a schedule for the epochs, a device for model and batches."""

from __future__ import annotations

from pathlib import Path

import pytest
from torch import nn
from torch.nn import functional as F
from torch.optim.lr_scheduler import StepLR

from tests.support.training import At, Values, at_rate, make_batches, sgd, skip_batch
from train_manager import TrainManager
from train_manager.testing import tiny_manager


def test_the_schedule_is_stepped_after_each_epoch() -> None:
    rates = Values("pre_train_step_epoch", "epoch_num", "rate")

    class Rate(TrainManager):
        def pre_train_step_epoch(self) -> None:
            assert self.optimizer is not None
            self.fixtures["rate"] = self.optimizer.param_groups[0]["lr"]

    tm = Rate(
        model=nn.Linear(2, 2),
        loss=F.cross_entropy,
        optimizer=at_rate(1.0),
        train_data=make_batches(2),
        lr_schedule=lambda optimizer: StepLR(optimizer, 1, gamma=0.5),
        epochs=3,
        extensions=[rates],
    )
    tm.train()

    assert rates.seen == [(0, 1.0), (1, 0.5), (2, 0.25)]


def test_the_model_and_the_batches_go_to_the_device() -> None:
    devices: list[str] = []
    tm = tiny_manager(
        At(
            "pre_train_model_forward", lambda inputs, targets: devices.extend([inputs.device.type, targets.device.type])
        ),
        At("pre_train_loss_forward", skip_batch),
        device="meta",
        optimizer=sgd,
        eval_data=None,
    )
    tm.train()

    assert set(devices) == {"meta"}
    assert {parameter.device.type for parameter in tm.model.parameters()} == {"meta"}


def test_all_arguments_are_keywords() -> None:
    with pytest.raises(TypeError, match="all arguments of TrainManager are keywords"):
        TrainManager(nn.Linear(1, 1))  # type: ignore[call-arg]


def test_the_home_folder_of_train_dir_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    tm = tiny_manager(train_dir="~/runs")
    tm.train_steps(1)

    assert tm.train_dir == tmp_path / "runs"
    assert (tmp_path / "runs").is_dir()
