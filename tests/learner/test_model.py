"""A model of a file: its modules, what they are fed, its outputs, and mistakes in them."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from tests.learner.files import network
from tests.learner.planted import MODEL, changed, forget_other_words, said_of
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


def test_a_module_that_takes_more_memory_than_there_is_is_named_with_the_error_of_torch() -> None:
    with pytest.raises(InputError, match=r"^the dict: module\.one: Linear raised RuntimeError: "):
        of({"one": {"from": "point", "use": "Linear", "out_features": 10**15}})


# ---- mistakes ----


@pytest.fixture(autouse=True)
def in_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An empty folder, and the words of these files alone."""
    monkeypatch.chdir(tmp_path)
    forget_other_words(monkeypatch)


PLANTED = {
    "a misspelt key of a module": (
        [('from = "trunk"', 'form = "trunk"')],
        """\
model.toml has 2 mistakes
  model.toml:10  module.digit lacks from: the inputs and modules that feed it, in the order of its arguments
  model.toml:11  module.digit.form is not an argument of Linear
                 did you mean 'from'? known: in_features, out_features, bias, from, layers""",
    ),
    "no from": (
        [('from = "trunk"\n', "")],
        """\
model.toml has a mistake
  model.toml:10  module.digit lacks from: the inputs and modules that feed it, in the order of its arguments""",
    ),
    "a feeder that does not exist": (
        [('from = "trunk"', 'from = "trnuk"')],
        """\
model.toml has a mistake
  model.toml:11  module.digit.from names 'trnuk', which is neither an input nor a module
                 did you mean 'trunk'? known: image, trunk, digit""",
    ),
    "a circle": (
        [('from = "image"', 'from = "digit"')],
        """\
model.toml has a mistake
  model.toml:11  module.digit.from feeds itself: digit -> trunk -> digit
                 feed one of them by an input, or by a module before it""",
    ),
    "an objective at no module": (
        [('at = "digit"', 'at = "digits"')],
        """\
model.toml has a mistake
  model.toml:16  objective.class.at names 'digits', which is not a module
                 did you mean 'digit'? known: trunk, digit""",
    ),
    "both at and between": (
        [('at = "digit"', 'at = "digit"\nbetween = ["digit", "trunk"]')],
        """\
model.toml has a mistake
  model.toml:14  objective.class has both at and between
                 at compares a module with the targets, between compares two modules with each other""",
    ),
    "neither at nor between": (
        [('at = "digit"\n', "")],
        """\
model.toml has a mistake
  model.toml:14  objective.class lacks at = "a module", or between = ["one", "another"]
                 known: trunk, digit""",
    ),
    "both use and layers": (
        [('use = "Linear"', 'use = "Linear"\nlayers = [{ use = "ReLU" }]')],
        """\
model.toml has a mistake
  model.toml:12  module.digit.use stands beside layers
                 a single module has use = "..." and its arguments, several have layers = [{ use = "..." }]""",
    ),
    "a module that is called train": (
        [("[module.digit]", "[module.train]"), ('at = "digit"', 'at = "train"')],
        """\
model.toml has a mistake
  model.toml:10  module.train has the name of model.train, which every model has
                 give it another name""",
    ),
    "a module that is called forward": (
        [("[module.digit]", "[module.forward]"), ('at = "digit"', 'at = "forward"')],
        """\
model.toml has a mistake
  model.toml:10  module.forward has the name of model.forward, which every model has
                 give it another name""",
    ),
    "a module that is called names": (
        [("[module.digit]", "[module.names]"), ('at = "digit"', 'at = "names"')],
        """\
model.toml has a mistake
  model.toml:10  module.names has the name of model.names, which every model has
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
    "a weight that is not a number": (
        [('at = "digit"', 'at = "digit"\nweight = nan')],
        """\
model.toml has a mistake
  model.toml:17  objective.class.weight must be a finite number, but is the number nan""",
    ),
    "an unknown reduction": (
        [('at = "digit"', 'at = "digit"\nreduction = "maen"')],
        """\
model.toml has a mistake
  model.toml:17  objective.class.reduction must be 'mean' or 'sum' or 'batchmean', but is the text 'maen'
                 a loss must be one number""",
    ),
}


@pytest.mark.parametrize(("changes", "message"), PLANTED.values(), ids=PLANTED)
def test_a_mistake_in_a_model_is_named_with_its_cure(changes: list[tuple[str, str]], message: str) -> None:
    assert said_of(model=changed(MODEL, *changes)) == message
