"""A model of a file: its modules, what they are fed, and its outputs."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import nn

from tests.learner.files import network
from train_manager import InputError
from train_manager.learner import load_model
from train_manager.learner.model import FileModel

LINEAR = {"use": "Linear", "out_features": 3}


def of(modules: dict[str, Any], **more: Any) -> Any:
    return load_model({"inputs": {"point": [4]}, "module": modules, **more})


def test_it_equals_the_same_modules_by_hand() -> None:
    torch.manual_seed(0)
    model: Any = load_model(network())
    torch.manual_seed(0)
    trunk = nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6), nn.ReLU())
    head = nn.Linear(6, 3)
    points = torch.rand(5, 4)

    assert model(points).equal(head(trunk(points)))
    assert list(model.state_dict()) == [f"trunk.{name}" for name in trunk.state_dict()] + ["head.weight", "head.bias"]


def test_a_module_may_feed_several() -> None:
    model = of(
        {"trunk": {"from": "point", **LINEAR}, "one": {"from": "trunk", **LINEAR}, "other": {"from": "trunk", **LINEAR}}
    )
    points = torch.rand(5, 4)
    found = model(points)

    assert {name: output.shape for name, output in found.items()} == {"one": (5, 3), "other": (5, 3)}
    assert found["one"].equal(model.one(model.trunk(points)))


def test_a_module_may_be_fed_by_several() -> None:
    modules = {"one": {"from": "point", **LINEAR}, "both": {"from": ["one", "point"], "use": "Concatenate"}}
    model = of(modules)
    points = torch.rand(5, 4)

    assert model(points).equal(torch.cat([model.one(points), points], 1))


def test_modules_stand_in_any_order() -> None:
    modules = {"head": {"from": "trunk", **LINEAR}, "trunk": {"from": "point", **LINEAR}}
    model = of(modules)
    points = torch.rand(5, 4)

    assert model(points).equal(model.head(model.trunk(points)))


def test_a_module_with_an_objective_is_an_output_too() -> None:
    objective = {"middle": {"use": "mse_loss", "at": "trunk"}}
    modules = {"trunk": {"from": "point", **LINEAR}, "head": {"from": "trunk", **LINEAR}}

    assert list(of(modules, objective=objective)(torch.rand(5, 4))) == ["head", "trunk"]


def test_the_outputs_of_the_file_are_given_in_its_order() -> None:
    modules = {"trunk": {"from": "point", **LINEAR}, "head": {"from": "trunk", **LINEAR}}

    assert list(of(modules, outputs=["trunk", "head"])(torch.rand(5, 4))) == ["trunk", "head"]


def test_a_dict_of_inputs_may_lack_what_a_branch_needs() -> None:
    modules = {"one": {"from": "left", **LINEAR}, "other": {"from": "right", **LINEAR}}
    model: Any = load_model({"inputs": {"left": [4], "right": [2]}, "module": modules})

    assert list(model({"left": torch.rand(5, 4)})) == ["one"]


def test_inputs_that_are_not_the_models_are_named() -> None:
    with pytest.raises(InputError, match=r"^the model takes point, but was given a dict of spot\n"):
        load_model(network())({"spot": torch.rand(5, 4)})


@pytest.mark.parametrize(
    "name", ["training", "description", "learner", "objectives", "source", "names", "examples", "forward", "parameters"]
)
def test_a_module_cannot_have_the_name_of_what_each_model_has(name: str) -> None:
    with pytest.raises(InputError) as caught:
        of({name: {"from": "point", **LINEAR}})

    first = f"the dict has a mistake\n  the dict  module.{name} has the name of model.{name}, which every model has\n"
    assert str(caught.value).startswith(first)


def test_a_copy_gives_the_same() -> None:
    model: Any = load_model(network()).eval()
    points = torch.rand(5, 4)

    assert copy.deepcopy(model)(points).equal(model(points))


def test_the_description_makes_the_same_model_anew() -> None:
    model: Any = load_model(network())
    again = FileModel(model.description)
    again.load_state_dict(model.state_dict())
    points = torch.rand(5, 4)

    assert again.eval()(points).equal(model.eval()(points))


def test_to_load_a_model_draws_only_its_weights() -> None:
    torch.manual_seed(0)
    load_model(network())
    after = torch.rand(1)
    torch.manual_seed(0)
    nn.Linear(4, 6)
    nn.Linear(6, 3)

    assert torch.rand(1).equal(after)
