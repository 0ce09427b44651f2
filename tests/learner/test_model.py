"""A model of a file: its modules, what they are fed, its outputs, and mistakes in them."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from tests.learner.files import network
from tests.learner.planted import MODEL, changed, said_of
from train_manager import InputError
from train_manager.learner import load_model

pytestmark = pytest.mark.usefixtures("planted_words")

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


def test_to_load_a_model_draws_only_its_weights() -> None:
    torch.manual_seed(0)
    load_model(network())
    after = torch.rand(1)
    torch.manual_seed(0)
    nn.Linear(4, 6)
    nn.Linear(6, 3)

    assert torch.rand(1).equal(after)


def test_a_module_that_takes_more_memory_than_there_is_is_named_with_the_error_of_torch() -> None:
    with pytest.raises(InputError, match=r"^the dict: module\.one: Linear raised RuntimeError: "):
        of({"one": {"from": "point", "use": "Linear", "out_features": 10**15}})


# ---- mistakes ----


PLANTED = {
    "a circle": (
        [('from = "image"', 'from = "digit"')],
        """\
  model.toml:11  module.digit.from feeds itself: digit -> trunk -> digit
                 feed one of them by an input, or by a module before it""",
    ),
    "both at and between": (
        [('at = "digit"', 'at = "digit"\nbetween = ["digit", "trunk"]')],
        """\
  model.toml:14  objective.class has both at and between
                 at compares a module with the targets, between compares two modules with each other""",
    ),
    "neither at nor between": (
        [('at = "digit"\n', "")],
        """\
  model.toml:14  objective.class lacks at = "a module", or between = ["one", "another"]
                 known: trunk, digit""",
    ),
    "both use and layers": (
        [('use = "Linear"', 'use = "Linear"\nlayers = [{ use = "ReLU" }]')],
        """\
  model.toml:12  module.digit.use stands beside layers
                 a single module has use = "..." and its arguments, several have layers = [{ use = "..." }]""",
    ),
    "a module that is called train": (
        [("[module.digit]", "[module.train]"), ('at = "digit"', 'at = "train"')],
        """\
  model.toml:10  module.train has the name of model.train, which every model has
                 give it another name""",
    ),
    "a module with the name of an input": (
        [("[module.digit]", "[module.image]"), ('from = "trunk"', 'from = "image"'), ('at = "digit"', 'at = "image"')],
        """\
model.toml has 2 mistakes
  model.toml:10  module.image has the name of an input
                 give it another name
  model.toml:11  module.image.from feeds itself: image -> image
                 feed one of them by an input, or by a module before it""",
    ),
    "an unknown reduction": (
        [('at = "digit"', 'at = "digit"\nreduction = "maen"')],
        """\
  model.toml:17  objective.class.reduction must be 'mean' or 'sum' or 'batchmean', but is the text 'maen'
                 a loss must be one number""",
    ),
}


@pytest.mark.parametrize(("changes", "message"), PLANTED.values(), ids=PLANTED)
def test_a_mistake_in_a_model_is_named_with_its_cure(changes: list[tuple[str, str]], message: str) -> None:
    assert said_of(model=changed(MODEL, *changes)) == message
