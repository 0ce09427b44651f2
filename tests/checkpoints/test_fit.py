"""How parts were made, as far as it needs no training; the rest is in tests/extensions/reproducibility."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.optim import SGD, AdamW
from torch.optim.lr_scheduler import LambdaLR, MultiStepLR, SequentialLR, StepLR

from train_manager.checkpoints.fit import config_of, with_own_names
from train_manager.checkpoints.left_out import changed_values, left_out_values, put_back
from train_manager.checkpoints.parameter_order import parameter_names, parameters_of, state_for


def test_options_are_those_that_a_checkpoint_can_hold() -> None:
    made = config_of(AdamW([torch.zeros(2)], lr=torch.tensor(0.5), betas=(0.8, 0.9)))

    assert made["class"] == "AdamW"
    assert {name: made["options"][0][name] for name in ("lr", "betas", "fused")} == {
        "lr": 0.5,
        "betas": [0.8, 0.9],
        "fused": None,
    }


def test_a_rate_that_a_schedule_has_changed_is_the_one_that_it_began_with() -> None:
    optimizer = SGD([torch.zeros(2)], lr=0.5)
    LambdaLR(optimizer, lambda epoch: 0.1)

    assert optimizer.param_groups[0]["lr"] == 0.05
    assert config_of(optimizer)["options"][0]["lr"] == 0.5


def test_what_is_inside_of_a_schedule_is_part_of_it() -> None:
    optimizer = SGD([torch.zeros(2)], lr=0.5)
    made = config_of(SequentialLR(optimizer, [StepLR(optimizer, 3), MultiStepLR(optimizer, [2, 4])], milestones=[1]))

    assert made["class"] == "SequentialLR(StepLR, MultiStepLR)"
    assert [group.get("step_size", group.get("milestones")) for group in made["options"]] == [3, [2, 4]]


def test_a_tied_parameter_has_the_first_of_its_names_in_whatever_order_they_were_given() -> None:
    one, other = nn.Module(), nn.Module()
    for module, names in ((one, "ab"), (other, "ba")):
        weight = nn.Parameter(torch.zeros(2))
        for name in names:
            module.register_parameter(name, weight)

    assert [*parameter_names({"": one}).values()] == [*parameter_names({"": other}).values()] == ["a"]


def test_a_parameter_of_nothing_that_has_names_is_called_by_its_place() -> None:
    model, own = nn.Linear(1, 1), nn.Parameter(torch.zeros(3))
    groups: list[dict[str, Any]] = [{"params": [own]}, {"params": model.parameters()}]
    optimizer = SGD(groups)

    assert parameters_of(optimizer, parameter_names({"": model})) == [{"#0": [3]}, {"weight": [1, 1], "bias": [1]}]


def test_without_names_a_state_is_taken_by_position_if_the_counts_are_equal() -> None:
    one, other = SGD(nn.Linear(1, 1).parameters()), SGD(nn.Linear(1, 1, bias=False).parameters())

    assert state_for(one, one.state_dict(), None, {}) == one.state_dict()
    assert state_for(one, other.state_dict(), None, {}) is None


def test_names_of_a_compiled_module_inside_of_another_are_found() -> None:
    assert with_own_names({"trunk._orig_mod.bias": 1}, ["trunk.bias"]) == {"trunk.bias": 1}
    assert with_own_names({"trunk.bias": 1}, ["trunk._orig_mod.bias"]) == {"trunk._orig_mod.bias": 1}


def test_only_numbers_and_buffers_that_are_here_are_set_from_a_file() -> None:
    dropout: Any = nn.Sequential(nn.Dropout(0.1))
    before = left_out_values(dropout)
    put_back(dropout, {"0.p": 0.5, "0.forward": 1, "0.inplace": 7, "other.p": 0.9})

    assert changed_values(dropout, before) == {"0.p": 0.5}
    assert dropout[0].inplace is False
    assert callable(dropout[0].forward)
