"""How optimizers and schedules were made, as a checkpoint has it; tests/runs/record has what a record has."""

from __future__ import annotations

from typing import Any

import torch
from torch.optim import SGD, AdamW
from torch.optim.lr_scheduler import LambdaLR, MultiStepLR, SequentialLR, StepLR

from train_manager.checkpoints.made import config_of


def test_options_are_texts_of_plain_values() -> None:
    made = config_of(AdamW([torch.zeros(2)], lr=torch.tensor(0.5), betas=(0.8, 0.9)))

    assert made["class"] == "AdamW"
    assert {name: made["options"][name] for name in ("lr", "betas", "foreach")} == {
        "lr": "0.5",
        "betas": "(0.8, 0.9)",
        "foreach": "None",
    }


def test_options_of_groups_that_differ_are_told_of_each() -> None:
    groups: list[dict[str, Any]] = [{"params": [torch.zeros(2)], "mine": 3}, {"params": [torch.zeros(2)], "lr": 0.2}]

    options = config_of(SGD(groups, lr=0.1))["options"]
    assert (options["lr"], options["mine"], options["momentum"]) == ("(0.1, 0.2)", "(3, None)", "0")


def test_a_rate_that_a_schedule_has_changed_is_the_one_that_it_began_with() -> None:
    optimizer = SGD([torch.zeros(2)], lr=0.5)
    LambdaLR(optimizer, lambda epoch: 0.1)

    assert optimizer.param_groups[0]["lr"] == 0.05
    assert config_of(optimizer)["options"]["lr"] == "0.5"


def test_what_is_inside_of_a_schedule_is_part_of_it() -> None:
    optimizer = SGD([torch.zeros(2)], lr=0.5)
    inner = [StepLR(optimizer, 3), MultiStepLR(optimizer, [2, 4])]
    made = config_of(SequentialLR(optimizer, inner, milestones=[1]))

    # Schedules of torch 2.6 have an argument more.
    options = {name: text.replace(", verbose=False", "") for name, text in made["options"].items() if name != "verbose"}
    assert made["class"] == "SequentialLR(StepLR, MultiStepLR)"
    assert options == {
        "milestones": "[1]",
        "schedulers": "[StepLR(step_size=3, gamma=0.1), MultiStepLR(milestones=[2, 4], gamma=0.1)]",
    }


def test_of_a_schedule_of_ones_own_all_open_attributes_are_options() -> None:
    class Ramp:
        def __init__(self, optimizer: SGD, minutes: float) -> None:
            self.optimizer, self.steps, self._hidden = optimizer, 60 * minutes, 3

    assert config_of(Ramp(SGD([torch.zeros(2)]), 1.5))["options"]["steps"] == "90.0"
