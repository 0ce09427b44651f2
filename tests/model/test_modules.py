from __future__ import annotations

from typing import Any

import pytest
from torch import nn

from train_manager import InputError
from train_manager.model.modules import choices, choose_modules


def net() -> nn.Module:
    model = nn.Sequential()
    model.trunk = nn.Sequential(nn.Linear(2, 2), nn.ReLU())
    model.head = nn.Linear(2, 2)
    return model


@pytest.mark.parametrize(
    ("wanted", "names"),
    [("trunk", ["trunk"]), ("trunk.*", ["trunk.0", "trunk.1"]), ("h*", ["head"]), ("trunk.[1]", ["trunk.1"])],
)
def test_modules_are_chosen_by_name_or_pattern(wanted: str, names: list[str]) -> None:
    assert list(choose_modules(net(), [wanted], "Test")) == names


def test_a_module_is_chosen_by_itself() -> None:
    model = net()
    assert choose_modules(model, [model.get_submodule("trunk.0")], "Test") == {
        "trunk.0": model.get_submodule("trunk.0")
    }


def test_a_module_that_is_chosen_twice_is_there_once() -> None:
    assert list(choose_modules(net(), ["head", "h*"], "Test")) == ["head"]


def test_a_misspelt_name_is_an_error_with_the_nearest() -> None:
    with pytest.raises(InputError) as error:
        choose_modules(net(), ["trunc"], "FreezeModules")
    assert str(error.value) == (
        "FreezeModules finds no module 'trunc' in the model (Sequential)\n  did you mean 'trunk'?"
    )


def test_where_nothing_is_near_the_outermost_modules_are_named() -> None:
    with pytest.raises(InputError, match=r"\n  its modules are trunk, head$"):
        choose_modules(net(), ["x.*"], "FreezeModules")


def test_a_module_of_another_model_is_refused() -> None:
    with pytest.raises(InputError) as error:
        choose_modules(net(), [nn.Linear(2, 2)], "Constrain")
    assert str(error.value) == (
        "Constrain was given a Linear that is not part of the model (Sequential)\n"
        "  give a module of the model, or its name"
    )


def test_choices_may_stand_alone_or_in_lists() -> None:
    layer = nn.Linear(1, 1)
    assert choices(["a", ["b", layer]], "Test") == ["a", "b", layer]


def test_an_iterable_module_is_one_module() -> None:
    model = net()
    assert choices([model], "Test") == [model]


@pytest.mark.parametrize("given", [[], [[]]])
def test_no_choice_at_all_is_refused(given: list[Any]) -> None:
    with pytest.raises(InputError) as error:
        choices(given, "FreezeModules")
    assert str(error.value) == (
        'FreezeModules was given no module\n  give names or patterns: FreezeModules("trunk", "head.*")'
    )


def test_what_is_neither_name_nor_module_is_refused() -> None:
    with pytest.raises(InputError) as error:
        choices([3], "FreezeModules")  # type: ignore[list-item]
    assert str(error.value) == ("modules of FreezeModules must be modules, names or patterns, but one is 3")


class Compiled(nn.Module):  # as torch.compile's, which takes seconds to import
    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self._orig_mod = module


@pytest.mark.parametrize(
    ("wanted", "names"),
    [("trunk.*", ["trunk.0", "trunk.1"]), ("_orig_mod.head", ["head"]), ("_orig_mod.trunk.*", ["trunk.0", "trunk.1"])],
)
def test_modules_of_a_compiled_model_have_their_plain_names(wanted: str, names: list[str]) -> None:
    assert list(choose_modules(Compiled(net()), [wanted], "Test")) == names


def test_of_a_compiled_part_the_module_inside_is_chosen_by_name_and_by_itself() -> None:
    model: Any = net()
    inner, model.head = model.head, Compiled(model.head)
    chosen = [choose_modules(model, [choice], "Test") for choice in ("head", model.head, inner)]
    assert chosen == [{"head": inner}] * 3


def test_a_pattern_of_submodules_leaves_out_a_compiled_part_itself() -> None:
    model: Any = net()
    model.trunk = Compiled(model.trunk)
    assert list(choose_modules(model, ["trunk.*"], "Test")) == ["trunk.0", "trunk.1"]
