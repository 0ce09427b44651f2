"""What fits of a saved state, as far as it needs no training; the rest is in tests/extensions/reproducibility."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.optim import SGD

from train_manager.checkpoints.fit import with_own_names
from train_manager.checkpoints.left_out import changed_values, left_out_values, put_back
from train_manager.checkpoints.parameter_order import parameter_names, parameters_of, state_for


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
