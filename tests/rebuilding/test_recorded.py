from __future__ import annotations

import copy
import gc
import json
import pickle
import re
import weakref
from collections.abc import Iterator
from functools import partial
from io import StringIO
from pathlib import Path
from threading import Lock
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F

import train_manager.extensions
from tests.rebuilding.recorded_parts import (
    Base,
    Colour,
    Derived,
    Head,
    Holder,
    Net,
    Point,
    Unrecorded,
    scaled_loss,
)
from tests.support.refusals import refusal
from train_manager import Extension, InMemory, every, recorded
from train_manager.rebuilding.making import rebuild
from train_manager.rebuilding.recorded import parameters_of
from train_manager.rebuilding.recorded_rows import expression, parameter_rows
from train_manager.rebuilding.torch_names import torch_names

HERE = "tests.rebuilding.recorded_parts"


def arguments_of(made: object) -> Any:
    return parameters_of(made)["arguments"]


def written(value: object) -> Any:
    """What is recorded of one argument."""
    return arguments_of(Holder(given=value))["given"]


def why_not(value: object) -> str:
    """Why an argument cannot be rebuilt."""
    reason: str = written(value)["$not_rebuildable"]
    return reason


# ---- the call --------------------------------------------------------------------------------------------------------


def test_arguments_are_recorded_by_name_with_their_defaults() -> None:
    assert parameters_of(Net(8)) == {
        "$object": f"{HERE}:Net",
        "arguments": {"width": 8, "threshold": 0.5, "head": None},
    }


def test_a_recorded_object_among_the_arguments_is_recorded_with_its_own() -> None:
    head = {"$object": f"{HERE}:Head", "arguments": {"classes": 10, "bias": False}}

    assert arguments_of(Net(8, head=Head(10, bias=False)))["head"] == head
    assert arguments_of(Holder({"heads": [Head(10, False)]})) == {"values": {"$tuple": [{"heads": [head]}]}}


def test_the_names_of_starred_arguments_stand_among_the_others() -> None:
    assert arguments_of(Holder(1, 2, depth=3)) == {"values": {"$tuple": [1, 2]}, "depth": 3}


def test_the_outermost_constructor_counts() -> None:
    assert parameters_of(Derived(0.5)) == {"$object": f"{HERE}:Derived", "arguments": {"scale": 0.5}}


def test_a_subclass_needs_a_decorator_of_its_own() -> None:
    assert (
        refusal(lambda: parameters_of(Unrecorded(3)))
        == "this Unrecorded is not recorded\n  write @recorded above the class Unrecorded"
    )
    assert why_not(Unrecorded(3)) == "a Unrecorded, which is not recorded (its base Base is)"


def test_a_list_that_changes_later_does_not_change_the_record() -> None:
    sizes = [1, 2]
    holder = Holder(sizes=sizes)
    sizes.append(3)

    assert arguments_of(holder)["sizes"] == [1, 2]


def test_a_list_that_the_constructor_changes_is_recorded_as_it_was_given() -> None:
    sizes = [1, 2]
    kind = recorded(type("Popping", (), {"__init__": lambda self, sizes: sizes.clear(), "__module__": __name__}))

    assert arguments_of(kind(sizes))["sizes"] == [1, 2]


def test_the_object_that_stands_in_two_places_is_recorded_once() -> None:
    head = Head(3)
    inner = Holder(head=head)
    holder = Holder(first=inner, second=head)

    assert arguments_of(holder)["second"] == {"$same": ["first", "head"]}
    assert parameter_rows(parameters_of(holder))["second"] == "the same as first.head"


def test_each_table_of_a_list_has_rows_of_its_own() -> None:
    rows = parameter_rows(parameters_of(Holder(given=[{"a": 1}, {"a": 2}], sizes=[1, 2])))

    assert rows == {"": "Holder", "given.0.a": "1", "given.1.a": "2", "sizes": "[1, 2]"}


@pytest.mark.parametrize("again", [copy.copy, copy.deepcopy, lambda made: pickle.loads(pickle.dumps(made))])
def test_a_copy_and_a_pickle_keep_the_record(again: Any) -> None:
    net = Net(8, head=Head(3))

    assert parameters_of(again(net)) == parameters_of(net)


def test_a_named_tuple_and_an_enum_are_recorded_as_values() -> None:
    assert written(Point(3)) == {"$object": f"{HERE}:Point", "arguments": {"x": 3, "y": 0}}
    assert written(Colour.GREEN) == {"$enum": [f"{HERE}:Colour", "GREEN"]}


def test_a_constructor_that_fails_raises_its_own_error() -> None:
    with pytest.raises(TypeError, match=r"missing 1 required positional argument: 'width'"):
        Net()  # type: ignore[call-arg]


def test_a_record_keeps_no_argument_alive() -> None:
    weights = nn.Linear(2, 2)
    gone = weakref.ref(weights)
    kind = recorded(type("Dropping", (), {"__init__": lambda self, weights: None, "__module__": __name__}))
    made = kind(weights)
    del weights
    gc.collect()

    assert gone() is None
    assert arguments_of(made) == {"weights": {"$not_rebuildable": "a Linear, which is not recorded"}}


def test_a_class_that_is_recorded_twice_is_wrapped_once() -> None:
    init = Base.__init__

    assert recorded(Base) is Base
    assert Base.__init__ is init


def test_a_class_of_somebody_else_is_registered_by_a_call() -> None:
    kind = type("Theirs", (), {"__init__": lambda self, size: None, "__module__": "theirs"})

    assert recorded(kind) is kind
    assert parameters_of(kind(3)) == {"$object": "theirs:Theirs", "arguments": {"size": 3}}


@pytest.mark.parametrize("name", sorted({*train_manager.extensions.__all__} - {"default_extensions"}))
def test_each_extension_that_ships_is_registered(name: str) -> None:
    kind = getattr(train_manager.extensions, name)

    assert written(kind) == {"$callable": f"train_manager.extensions:{name}"}


def test_a_class_inside_a_function_is_refused() -> None:
    class Local:
        pass

    assert refusal(lambda: recorded(Local)) == (
        "recorded() takes a class or a function at the top level of a module, but was given Local, which is defined "
        "inside test_a_class_inside_a_function_is_refused()\n"
        "  move it out of the function, so that another process which imports the module has it too"
    )


def test_a_class_without_a_place_for_the_record_is_refused() -> None:
    assert refusal(lambda: recorded(type("Slotted", (), {"__slots__": ("x",), "__module__": __name__}))) == (
        "Slotted has __slots__, which leave no place for a record\n"
        '  add "__dict__" to them; of a dataclass, leave slots=True out'
    )


# ---- values ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "tree"),
    [
        (float("nan"), {"$float": "nan"}),
        (-float("inf"), {"$float": "-inf"}),
        (Path("a/b"), {"$path": "a/b"}),
        (torch.bfloat16, {"$dtype": "torch.bfloat16"}),
        (torch.device("cuda", 1), {"$device": "cuda:1"}),
        ({1: "one"}, {"$dict": [[1, "one"]]}),
        (np.float64(0.5), 0.5),
        (np.int64(3), 3),
        (torch.tensor([1.0, 2.0]), {"$numbers": [[1.0, 2.0], "torch.float32"]}),
        (F.cross_entropy, {"$callable": "torch.nn.functional:cross_entropy"}),
        (nn.GELU, {"$callable": "torch.nn:GELU"}),
        (scaled_loss, {"$callable": f"{HERE}:scaled_loss"}),
        (
            partial(torch.optim.AdamW, lr=0.1),
            {"$callable": "torch.optim:AdamW", "arguments": {"lr": 0.1}},
        ),
        (nn.Dropout(0.3), {"$object": "torch.nn:Dropout", "arguments": {"p": 0.3, "inplace": False}}),
        (every(3), {"$object": "train_manager.schedules:Every", "arguments": {"n": 3, "first": False}}),
    ],
    ids=lambda value: re.sub(r" at 0x[0-9a-f]+", "", repr(value)),
)
def test_a_value_is_written_as(value: object, tree: object) -> None:
    assert written(value) == tree


def unrecorded_function() -> None: ...


class Unlisted:
    pass


def numbers() -> Iterator[int]:
    yield 1


CYCLE: list[Any] = []
CYCLE.append([CYCLE])


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (torch.zeros(3, 100), "a tensor of shape (3, 100)"),
        (np.zeros(3), "an array of shape (3,)"),
        (nn.Linear(2, 3), "a Linear, which is not recorded"),
        (lambda: 1, "a lambda"),
        (unrecorded_function, f"the function {__name__}:unrecorded_function, which is not recorded"),
        (Unlisted, f"the class {__name__}:Unlisted, which is not recorded"),
        (Unlisted(), "a Unlisted, which is not recorded"),
        (Base().__init__, "the method Base.__init__ of an object"),  # type: ignore[misc]
        (StringIO(), "a StringIO, which is not recorded"),
        (numbers(), "a generator, which is not recorded"),
        (Lock(), "a lock, which is not recorded"),
        (CYCLE, "what is nested more than 100 deep, or contains itself"),
        ([1, lambda: 1], "a lambda"),
        ("x" * 200_000, "a text of 200000 characters"),
        ([0] * 200_000, "more than 100000 values"),
    ],
    ids=lambda value: value if isinstance(value, str) and len(value) < 100 else "value",
)
def test_what_cannot_be_written_says_why(value: object, reason: str) -> None:
    assert why_not(value) == reason


def test_one_argument_that_cannot_be_written_leaves_the_others() -> None:
    assert arguments_of(Holder(width=3, hook=lambda: 1, options={"a": 1, "b": lambda: 1})) == {
        "width": 3,
        "hook": {"$not_rebuildable": "a lambda", "described": "lambda: 1"},
        "options": {"a": 1, "b": {"$not_rebuildable": "a lambda", "described": "lambda: 1"}},
    }


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (
            nn.Sequential(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), *[nn.ReLU(inplace=True)] * 2, nn.Flatten()),
            "Sequential(Conv2d(1, 4, (3, 3), stride=(1, 1)), BatchNorm2d(4), 2 x ReLU(inplace=True), Flatten())",
        ),
        (
            InMemory({"x": torch.zeros(6, 3), "y": np.arange(6)}, batch_size=4),
            "InMemory(6 rows, 2 batches of 4) of x float32 [6, 3], y int64 [6]",
        ),
    ],
    ids=["layers", "arrays"],
)
def test_what_cannot_be_written_is_described_by_its_layers_or_arrays(value: object, text: str) -> None:
    assert expression(written(value)) == text


def test_a_list_with_a_lambda_is_not_described_as_the_lambda() -> None:
    assert written([1, lambda: 1]) == {"$not_rebuildable": "a lambda"}


def test_a_secret_is_not_described() -> None:
    assert written({"password": lambda: "hunter2"}) == {"password": {"$not_rebuildable": "what looks like a secret"}}


def test_a_default_that_cannot_be_written_is_left_to_the_class() -> None:
    def init(self: object, width: int, activation: Any = unrecorded_function) -> None: ...

    kind = recorded(type("Defaulted", (), {"__init__": init, "__module__": __name__}))

    assert arguments_of(kind(3)) == {"width": 3}


def test_an_object_whose_attributes_raise_is_no_error() -> None:
    class Hostile:
        def __getattribute__(self, name: str) -> Any:
            raise RuntimeError("no")

    assert why_not(Hostile()) == "a Hostile, whose look-up raised RuntimeError"


def test_records_are_never_deeper_than_a_checkpoint_can_hold() -> None:
    made: Any = Base()
    for _ in range(60):
        made = Holder([{"inner": made}])

    assert "nested too deep" in json.dumps(parameters_of(made))


# ---- secrets ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("password", "x"),
        ("apiKey", "x"),
        ("credentials", ("me", "x")),
        ("text", "sk-" + "aaaa1B2c" * 4),
        ("remote", "https://me:hunter2@example.com/x.git"),
        ("values", ["ghp_" + "a" * 36]),
        ("headers", {"Authorization": "glpat-" + "a" * 20}),
    ],
)
def test_what_looks_like_a_secret_is_not_written(name: str, value: Any) -> None:
    text = json.dumps(parameters_of(Holder(**{name: value})))

    assert '{"$not_rebuildable": "what looks like a secret"}' in text
    assert "hunter2" not in text
    assert "aaaa" not in text


SECRET = {"$not_rebuildable": "what looks like a secret"}


def test_a_module_with_the_name_of_a_token_is_written() -> None:
    layers = [{"use": "Conv2d", "out_channels": 8, "padding": "same"}, {"use": "LeakyReLU", "inplace": True}]
    module = {"token": {"from": ["trunk", "blocks.0"], "layers": layers}, "api_key": {"use": "Linear", "bias": None}}

    made = rebuild(parameters_of(Holder(module=module)))

    assert made.named == {"module": module}


@pytest.mark.parametrize(
    "value",
    [
        {"value": "sk-" + "aaaa1B2c" * 4},
        {"of": {"value": "ghp_" + "a" * 36}},
        {"of": {"password": "hunter"}},
        {"of": [("trunk", {"glpat-" + "a" * 20})]},
        {"token": "trunk"},
        {"hf_" + "a" * 30: "trunk"},
    ],
)
@pytest.mark.parametrize("name", ["token", "hf_token", "api_key"])
def test_a_dict_with_the_name_of_a_token_is_not_written_if_a_value_in_it_looks_like_a_secret(
    name: str, value: Any
) -> None:
    assert written({name: {"use": "Linear", **value}, "other": {"value": "abc"}}) == {
        name: SECRET,
        "other": {"value": "abc"},
    }


@pytest.mark.parametrize("name", ["password", "credentials", "client_secret", "secret_token"])
def test_a_dict_with_the_name_of_a_password_is_not_written_at_all(name: str) -> None:
    assert written({name: {"user": "me", "value": "hunter"}}) == {name: SECRET}


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("num_tokens", 3),
        ("mask_token", "[MASK]"),
        ("password", None),
        ("url", "https://example.com/a:b"),
    ],
)
def test_what_is_no_secret_is_written(name: str, value: Any) -> None:
    assert arguments_of(Holder(**{name: value})) == {name: value}


# ---- PyTorch ---------------------------------------------------------------------------------------------------------


LOSSES = {name: kind for name, kind in torch_names().items() if name.startswith("torch.nn:") and name.endswith("Loss")}
WITH_PARTS = {f"torch.nn:{name}" for name in ("AdaptiveLogSoftmaxWithLoss", "LinearCrossEntropyLoss")}
WITH_PARTS.add("torch.nn:TripletMarginWithDistanceLoss")


@pytest.mark.parametrize("name", sorted({*LOSSES} - WITH_PARTS))
def test_a_loss_of_torch_is_recorded_with_all_its_arguments(name: str) -> None:
    tree = written(LOSSES[name]())

    assert tree["$object"] == name
    assert "$not_rebuildable" not in json.dumps(tree)


def test_nothing_of_torch_that_reads_files_is_registered() -> None:
    assert {"torch:load", "torch.nn:Module", "torch.optim:Optimizer", "torch:compile"} & torch_names().keys() == set()


def test_an_extension_of_functions_is_not_rebuildable() -> None:
    assert why_not(Extension.of(post_run=lambda: None)) == "a Hooks, which is not recorded"


# ---- OmegaConf -------------------------------------------------------------------------------------------------------


def test_configs_of_omegaconf_are_recorded_as_dicts_and_lists() -> None:
    conf = pytest.importorskip("omegaconf").OmegaConf
    config = conf.create({"width": 8, "twice": "${width}", "sizes": [1, [2.5]], "inner": {"on": True, "password": "x"}})

    assert written(config) == {
        "width": 8,
        "twice": 8,
        "sizes": [1, [2.5]],
        "inner": {"on": True, "password": {"$not_rebuildable": "what looks like a secret"}},
    }
    assert written(config.sizes) == [1, [2.5]]


def test_a_config_of_omegaconf_with_a_missing_value_is_not_recorded() -> None:
    conf = pytest.importorskip("omegaconf").OmegaConf

    assert why_not(conf.create({"width": "???"})) == "a DictConfig, whose look-up raised MissingMandatoryValue"
