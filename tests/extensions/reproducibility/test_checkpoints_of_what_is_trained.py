"""Checkpoints of what is trained, beside a frozen base that each resumed training must have."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tests.support.checkpointing import Fails, path_of, steps_in
from tests.support.training import At, weights
from train_manager import TrainManager, every
from train_manager.checkpoints.checkpoint import read_checkpoint
from train_manager.checkpoints.verification import read_manifest
from train_manager.errors import CheckpointError
from train_manager.extensions import Checkpoints
from train_manager.testing import tiny_manager


class LoRA(nn.Module):
    """A frozen layer, with the product of two small matrices beside it."""

    def __init__(self, base: nn.Linear) -> None:
        super().__init__()
        self.base = base.requires_grad_(False)
        self.down = nn.Linear(base.in_features, 2, bias=False)
        self.up = nn.Linear(2, base.out_features, bias=False)

    def forward(self, inputs: Tensor) -> Tensor:
        output: Tensor = self.base(inputs) + self.up(self.down(inputs))
        return output


BASE = ["0.base.weight", "0.base.bias", "2.base.weight", "2.base.bias"]
TRAINED = {"0.down.weight", "0.up.weight", "2.down.weight", "2.up.weight"}


def training(*extensions: Any, seed: int = 0, **options: Any) -> TrainManager:
    torch.manual_seed(seed)
    model = nn.Sequential(LoRA(nn.Linear(2, 8)), nn.BatchNorm1d(8), LoRA(nn.Linear(8, 2)))
    return tiny_manager(*extensions, model=model, **{"epochs": 2, **options})


def saved(train_dir: Path, step: int) -> set[str]:
    return {*read_checkpoint(path_of(train_dir, step), ["model"])["model"]}


def base_in(train_dir: Path, step: int) -> list[str]:
    return [*read_manifest(path_of(train_dir, step))["base"]["tensors"]]


def test_the_frozen_parameters_are_left_out_and_named_by_their_hashes(tmp_path: Path) -> None:
    training(Checkpoints(only="trainable"), train_dir=tmp_path).train()

    assert saved(tmp_path, 6) == TRAINED | {f"1.{name}" for name in nn.BatchNorm1d(8).state_dict()}
    assert base_in(tmp_path, 6) == BASE


@pytest.mark.parametrize("which", [{"only": "trainable"}, {"exclude": "*.base.*"}, {}], ids=["only", "exclude", "all"])
def test_the_training_resumes_to_the_same_bits_on_the_same_base(which: dict[str, Any], tmp_path: Path) -> None:
    (whole := training()).train()
    with pytest.raises(ZeroDivisionError):
        training(Checkpoints(every(2), only="trainable"), Fails(5), train_dir=tmp_path).train()
    (resumed := training(Checkpoints(resume=True, **which), train_dir=tmp_path)).train()

    assert weights(resumed.model).equal(weights(whole.model))


def test_another_base_is_refused_and_nothing_is_lost(tmp_path: Path) -> None:
    training(Checkpoints(only="trainable"), train_dir=tmp_path).train()
    other = training(Checkpoints(only="trainable", resume=True), seed=1, epochs=3, train_dir=tmp_path)
    before = weights(other.model)
    with pytest.raises(CheckpointError, match="4 of the 4 tensors that it leaves out differ, the first is 0"):
        other.train()

    assert weights(other.model).equal(before)
    assert steps_in(tmp_path) == [3, 6]


def test_with_strict_false_it_is_told_and_used(tmp_path: Path) -> None:
    training(Checkpoints(only="trainable"), train_dir=tmp_path).train()
    other = training(Checkpoints(only="trainable", resume=True, strict=False), seed=1, epochs=3, train_dir=tmp_path)
    base = other.model[0].base.weight.clone()
    with pytest.warns(RuntimeWarning, match="step-000000000006 is of another base"):
        other.train()

    assert (other.epoch_num, other.model[0].base.weight.equal(base)) == (3, True)


def test_a_parameter_that_is_trained_later_is_saved_from_then_on(tmp_path: Path) -> None:
    def thaw(train_manager: TrainManager, step_num: int) -> None:
        thawed = train_manager.model[0].base.weight
        thawed.requires_grad_(step_num in (3, 4))
        if thawed.requires_grad:
            thawed.data.add_(0)
            torch.nn.init.ones_(thawed)

    thaws = At("pre_train_step_batch", thaw)
    training(Checkpoints(every(1), only="trainable", keep=None), thaws, train_dir=tmp_path).train()

    has_it = {step: "0.base.weight" in saved(tmp_path, step) for step in steps_in(tmp_path)}
    assert has_it == {1: False, 2: False, 3: False, 4: True, 5: True, 6: True}
    assert base_in(tmp_path, 6) == BASE[1:]


def test_what_a_pattern_leaves_out_although_it_is_trained_is_noted_and_not_of_the_base(tmp_path: Path) -> None:
    tm = training(Checkpoints(only="*.up.*"), train_dir=tmp_path)
    tm.train()

    (found,) = tm.findings
    assert (found.level, found.where.split(", ")[:3]) == ("note", ["0.down.weight", "1.bias", "1.num_batches_tracked"])
    assert (
        found.what == "no checkpoint holds tensors that have changed since the training began, as only leaves them out"
    )
    assert base_in(tmp_path, 6) == BASE
