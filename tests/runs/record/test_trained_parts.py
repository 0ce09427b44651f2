"""What is trained, and by what, in the record of a run."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from train_manager.extensions import Checkpoints, EarlyStopping, RunRecord
from train_manager.runs.record.run_file import read_runs
from train_manager.runs.record.trained_parts import part_facts, part_rows, trained_parts
from train_manager.testing import tiny_manager

GROUPS = [{"name": "decay", "lr": 0.1, "tensors": 2}, {"name": "rest", "lr": 0.01, "tensors": 1}]


def test_frozen_parameters_are_not_trained() -> None:
    tm = tiny_manager()
    tm.model[0].requires_grad_(False)

    assert trained_parts(tm)["model"] == {"class": "Sequential", "parameters": 42, "trained": 18}


def test_each_group_has_its_name_and_the_rate_that_the_user_gave() -> None:
    def two_groups(parameters: Iterable[nn.Parameter]) -> torch.optim.Optimizer:
        first, *rest = parameters
        groups: list[dict[str, Any]] = [{"params": [first], "lr": 0.25, "name": "first"}, {"params": rest}]
        return torch.optim.SGD(groups, lr=0.5)

    tm = tiny_manager(optimizer=two_groups, lr_schedule=lambda one: torch.optim.lr_scheduler.LinearLR(one, 0.1))

    assert trained_parts(tm)["optimizers"]["optimizer"] == {
        "class": "SGD",
        "groups": [{"name": "first", "lr": 0.25, "tensors": 1}, {"name": None, "lr": 0.5, "tensors": 3}],
    }


def test_the_extension_that_keeps_weights_decides() -> None:
    tm = tiny_manager(EarlyStopping("valid/loss"), Checkpoints(monitor="valid/accuracy"))

    assert trained_parts(tm)["monitor"] == {"metric": "valid/accuracy", "mode": "max", "by": "Checkpoints"}


def test_lazy_parameters_are_counted_once_they_have_shapes(tmp_path: Path) -> None:
    tm = tiny_manager(RunRecord(), model=nn.Sequential(nn.LazyLinear(3), nn.Linear(3, 2)), train_dir=tmp_path)
    before = trained_parts(tm)["model"]["parameters"]
    tm.train()

    assert (before, read_runs(tmp_path)[-1]["trains"]["model"]["parameters"]) == (8, 17)


def test_the_rates_of_groups_are_told_with_their_names() -> None:
    parts = {"optimizers": {"optimizer": {"class": "AdamW", "groups": GROUPS}}}

    assert [*part_facts(parts)] == [("optimizer", "AdamW", "decay lr 0.1; rest lr 0.01")]
    assert part_rows(parts) == {"optimizer groups": "decay lr 0.1, 2 tensors; rest lr 0.01, 1 tensor"}


@pytest.mark.parametrize(("count", "end"), [(3, "2 lr 0.1"), (5, "2 lr 0.1; 2 more")])
def test_of_many_groups_the_first_ones_are_told(count: int, end: str) -> None:
    groups = [{"name": str(number), "lr": 0.1, "tensors": 1} for number in range(count)]

    [(name, _, note)] = part_facts({"optimizers": {"critic": {"class": "SGD", "groups": groups}}})

    assert (name, note) == ("optimizer critic", f"0 lr 0.1; 1 lr 0.1; {end}")
