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


def group(name: str, lr: float, weight_decay: float | None = None, optimizer: str = "AdamW") -> dict[str, Any]:
    return {"name": name, "optimizer": optimizer, "tensors": 2, "lr": lr, "weight_decay": weight_decay}


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

    found = trained_parts(tm)["optimizers"]["optimizer"]
    assert [(one["name"], one["optimizer"], one["lr"], one["tensors"]) for one in found] == [
        ("first", "SGD", 0.25, 1),
        ("", "SGD", 0.5, 3),
    ]


def test_the_extension_that_keeps_weights_decides() -> None:
    tm = tiny_manager(EarlyStopping("valid/loss"), Checkpoints(monitor="valid/accuracy"))

    assert trained_parts(tm)["monitor"] == {"metric": "valid/accuracy", "mode": "max", "by": "Checkpoints"}


def test_lazy_parameters_are_counted_once_they_have_shapes(tmp_path: Path) -> None:
    tm = tiny_manager(RunRecord(), model=nn.Sequential(nn.LazyLinear(3), nn.Linear(3, 2)), train_dir=tmp_path)
    before = trained_parts(tm)["model"]["parameters"]
    tm.train()

    assert (before, read_runs(tmp_path)[-1]["trains"]["model"]["parameters"]) == (8, 17)


def test_groups_are_told_by_name_with_their_rates_and_classes() -> None:
    parts = {"optimizers": {"optimizer": [group("matrices", 0.1, optimizer="Muon"), group("rest", 0.01, 0.0)]}}

    assert [*part_facts(parts)] == [("optimizer", "Muon and AdamW", "matrices lr 0.1; rest lr 0.01")]
    assert part_rows(parts) == {
        "optimizer groups": "matrices lr 0.1, 2 tensors; rest lr 0.01, weight decay 0, 2 tensors"
    }


@pytest.mark.parametrize(("count", "end"), [(3, "2 lr 0.1"), (5, "2 lr 0.1; 2 more")])
def test_of_many_groups_the_first_ones_are_told(count: int, end: str) -> None:
    [(name, _, note)] = part_facts({"optimizers": {"critic": [group(str(number), 0.1) for number in range(count)]}})

    assert (name, note) == ("optimizer critic", f"0 lr 0.1; 1 lr 0.1; {end}")
