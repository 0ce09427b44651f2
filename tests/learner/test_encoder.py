"""The part of a model that leads to one module."""

from __future__ import annotations

from typing import Any

import torch

from tests.learner.files import network
from train_manager.learner import load_model
from train_manager.learner.encoder import Encoder

TWO_INPUTS = {
    "inputs": {"left": [4], "right": [2]},
    "module": {
        "one": {"from": "left", "use": "Linear", "out_features": 5},
        "other": {"from": "right", "use": "Linear", "out_features": 3},
        "both": {"from": ["one", "other"], "use": "Concatenate"},
        "head": {"from": "both", "use": "Linear", "out_features": 2},
    },
}


def test_it_has_the_modules_that_lead_to_its_own_and_no_copies() -> None:
    model: Any = load_model(network())
    encoder = Encoder(model, "trunk")

    assert list(encoder.parts) == ["trunk"]
    assert encoder.parts["trunk"] is model.trunk
    assert list(Encoder(model, "head").parts) == ["trunk", "head"]


def test_it_gives_what_its_module_gives() -> None:
    model: Any = load_model(network()).eval()
    points = torch.rand(5, 4)

    assert Encoder(model, "trunk")(points).equal(model.trunk(points))


def test_it_knows_the_width_of_its_module_and_the_values_of_an_example() -> None:
    encoder = Encoder(load_model(network()), "trunk")

    assert (encoder.width, encoder.values) == (6, 4)


def test_of_two_inputs_all_values_are_counted() -> None:
    encoder = Encoder(load_model(TWO_INPUTS), "both")

    assert (encoder.width, encoder.values) == (8, 6)
    assert encoder({"left": torch.zeros(3, 4), "right": torch.zeros(3, 2)}).shape == (3, 8)


def test_of_two_inputs_a_module_may_need_one() -> None:
    assert list(Encoder(load_model(TWO_INPUTS), "one").parts) == ["one"]


def test_to_make_it_moves_neither_statistics_nor_modes_nor_random_state() -> None:
    model: Any = load_model(network())
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    state = torch.get_rng_state()
    Encoder(model, "trunk")

    assert all(before[name].equal(tensor) for name, tensor in model.state_dict().items())
    assert (model.trunk.training, torch.get_rng_state().equal(state)) == (True, True)
