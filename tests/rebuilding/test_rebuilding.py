from __future__ import annotations

import json
import math
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from tests.rebuilding.recorded_parts import Colour, Derived, Head, Holder, Net, Point, Settings, scaled_loss
from tests.support.fork_server import ForkServer
from tests.support.programs import code
from train_manager import recorded
from train_manager.errors import CheckpointError
from train_manager.rebuilding.making import rebuild
from train_manager.rebuilding.recorded import parameters_of

HERE = "tests.rebuilding.recorded_parts"


def through_json(made: object, overrides: dict[str, Any] | None = None) -> Any:
    return rebuild(json.loads(json.dumps(parameters_of(made), allow_nan=False)), overrides)


def refused(tree: Any, overrides: dict[str, Any] | None = None) -> str:
    with pytest.raises(CheckpointError) as caught:
        rebuild(tree, overrides)
    return str(caught.value)


# ---- round trips -----------------------------------------------------------------------------------------------------

KEYS = st.text(max_size=5) | st.integers() | st.booleans() | st.tuples(st.integers(), st.text(max_size=2))
LEAVES = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False)
    | st.text(alphabet="abc\n\u00e4\U0001f600$._", max_size=8)
    | st.sampled_from([Colour.RED, Path("a b/c"), torch.float16, torch.device("cuda:1"), scaled_loss, nn.ReLU, Net])
)
VALUES = st.recursive(
    LEAVES,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.tuples(inner, inner)
        | st.dictionaries(KEYS, inner, max_size=3)
        | st.frozensets(st.integers() | st.text(alphabet="ab"), max_size=3)
        | st.builds(Settings, st.floats(allow_nan=False), st.tuples(st.integers()))
        | st.builds(Point, st.integers(), st.integers())
    ),
    max_leaves=15,
)


@given(VALUES)
def test_what_was_recorded_comes_back_equal_types_included(value: Any) -> None:
    again = through_json(Holder(value)).values[0]

    assert again == value
    assert json.dumps(parameters_of(Holder(again))) == json.dumps(parameters_of(Holder(value)))  # types too


@given(VALUES)
def test_what_is_made_again_has_the_same_record(value: Any) -> None:
    made = Holder(value, inner=Holder(value))

    assert parameters_of(through_json(made)) == parameters_of(made)


def test_nan_and_minus_zero_come_back() -> None:
    first, second = through_json(Holder(float("nan"), -0.0)).values

    assert math.isnan(first)
    assert math.copysign(1, second) == -1


def test_a_tensor_of_a_few_numbers_comes_back() -> None:
    weights = torch.tensor([[1.5, math.inf], [0.1, 3]], dtype=torch.bfloat16)
    (again,) = through_json(Holder(weights)).values

    assert again.equal(weights)
    assert again.dtype is torch.bfloat16


def test_one_object_in_two_places_is_one_again() -> None:
    head = Head(3)
    made = through_json(Holder(Holder(head=head), {"again": head}))

    assert made.values[1]["again"] is made.values[0].named["head"]


def test_a_subclass_is_made_by_its_own_constructor() -> None:
    made = through_json(Derived(0.5))

    assert type(made) is Derived
    assert made.size == 5


def test_positional_only_and_starred_arguments_are_called_as_they_were() -> None:
    def init(self: Any, first: int, /, second: int, *rest: int, last: int = 0, **more: int) -> None:
        self.got = (first, second, rest, last, more)

    kind: Any = recorded(type("Starred", (), {"__init__": init, "__module__": __name__}))

    assert through_json(kind(1, 2, 3, 4, last=5, other=6)).got == (1, 2, (3, 4), 5, {"other": 6})
    assert through_json(kind(1, second=2)).got == (1, 2, (), 0, {})


@recorded
def joined(first: int, *rest: int, last: int = 0) -> tuple[Any, ...]:
    return (first, *rest, last)


@pytest.mark.parametrize("args", [(), (1,), (1, 2, 3)])
def test_a_partial_takes_the_rest_of_its_arguments_by_position_as_before(args: tuple[int, ...]) -> None:
    (again,) = through_json(Holder(partial(joined, *args, last=5))).values

    assert again(7, 8) == (*args, 7, 8, 5)


# ---- overrides -------------------------------------------------------------------------------------------------------


def test_an_override_replaces_a_value_however_deep() -> None:
    net = through_json(Net(8, head=Head(3)), {"threshold": 0.7, "head.classes": 5})

    assert net.threshold == 0.7
    assert net.head.layer.out_features == 5


def test_an_override_may_be_any_object() -> None:
    backbone = nn.Linear(4, 2)

    assert through_json(Net(8), {"head": backbone}).head is backbone


def test_an_override_reaches_into_dicts_lists_and_partials() -> None:
    made = Holder(options={"a.b": {"c": 1}}, sizes=[1, 2], make=partial(torch.optim.SGD, lr=0.1), kind=torch.optim.Adam)
    again = through_json(
        made, {"options.a.b.c": 2, "sizes.1": 3, "make.lr": 0.2, "make.momentum": 0.9, "kind.lr": 0.5}
    ).named

    assert again["options"] == {"a.b": {"c": 2}}
    assert again["sizes"] == [1, 3]
    assert again["make"].keywords == {"lr": 0.2, "momentum": 0.9}
    assert again["kind"].keywords == {"lr": 0.5}


def test_an_override_supplies_what_cannot_be_rebuilt() -> None:
    assert through_json(Holder(hook=lambda: 1), {"hook": 3}).named["hook"] == 3


def test_the_recorded_parameters_stay_as_they_were() -> None:
    tree = parameters_of(Net(8, head=Head(3)))
    before = json.dumps(tree)
    rebuild(tree, {"head.classes": 5})

    assert json.dumps(tree) == before


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("treshold", "there is no 'treshold' to override\n  did you mean 'threshold'?"),
        ("head.clases", "there is no 'head.clases' to override\n  did you mean 'head.classes'?"),
        ("colour", "there is no 'colour' to override\n  it has width, threshold, head"),
        ("width.x", "there is no 'width.x' to override\n  width has no parts"),
    ],
)
def test_an_unknown_place_is_an_error_that_names_the_nearest(path: str, message: str) -> None:
    assert refused(parameters_of(Net(8, head=Head(3))), {path: 1}) == message


def test_a_part_of_what_cannot_be_rebuilt_cannot_be_overridden() -> None:
    assert refused(parameters_of(Net(8, head=nn.Linear(2, 2))), {"head.in_features": 3}) == (
        "'head.in_features' cannot be overridden: head was a Linear, which is not recorded\n"
        '  give all of it: overrides={"head": ...}'
    )


def test_a_part_of_what_is_given_cannot_be_overridden() -> None:
    assert refused(parameters_of(Net(8, head=Head(3))), {"head.classes": 3, "head": nn.Identity()}) == (
        "'head.classes' cannot be overridden: head is given itself\n  set it in what you give for head"
    )


def test_an_object_is_overridden_at_its_first_place() -> None:
    head = Head(3)

    assert refused(parameters_of(Holder(first=head, second=head)), {"second.classes": 5}) == (
        "'second.classes' cannot be overridden: second is the same object as first\n  write \"first.classes\""
    )


# ---- what cannot be rebuilt ------------------------------------------------------------------------------------------


def test_all_that_cannot_be_rebuilt_is_named_at_once() -> None:
    assert refused(parameters_of(Holder(hook=lambda: 1, inner=Holder(x=torch.zeros(99))))) == (
        "the checkpoint does not say how to make hook and inner.x\n"
        '  hook was a lambda: pass overrides={"hook": ...}\n'
        '  inner.x was a tensor of shape (99,): pass overrides={"inner.x": ...}'
    )


def test_an_argument_that_the_class_has_lost_is_named() -> None:
    tree = {"$object": f"{HERE}:Net", "arguments": {"width": 3, "treshold": 0.5}}

    assert refused(tree) == (
        "it was recorded with the argument 'treshold', which Net does not have any more\n"
        "  did you mean 'threshold'? Make it yourself: Net(...)"
    )


def test_an_argument_that_is_new_and_required_is_named() -> None:
    tree = {"$object": f"{HERE}:Net", "arguments": {"head": {"$object": f"{HERE}:Head", "arguments": {}}, "width": 3}}

    assert refused(tree) == (
        "Head needs the argument 'classes', which was not recorded for head\n"
        '  give it: overrides={"head.classes": ...}'
    )
    assert rebuild(tree, {"head.classes": 4}).head.layer.out_features == 4


def test_an_error_of_a_constructor_says_what_was_made() -> None:
    with pytest.raises(TypeError) as caught:
        through_json(Net(8, head=Head(3)), {"head.classes": "three"})

    assert caught.value.__notes__ == ["while head was rebuilt: Head(classes, bias)"]


# ---- names -----------------------------------------------------------------------------------------------------------


def test_a_class_that_was_moved_is_named_with_its_new_place() -> None:
    assert refused({"$object": "old.place:Penalised", "arguments": {}}) == (
        "it is made by 'old.place:Penalised', which this program has not registered\n"
        f"  did you mean '{HERE}:Penalised'? "
        "If you trust it, import the module that defines it, and write @recorded above it there"
    )


def test_nothing_is_made_if_one_name_is_unknown() -> None:
    made = []
    kind: Any = recorded(
        type("Counting", (), {"__init__": lambda self, x=None: made.append(1), "__module__": __name__})
    )
    kind()
    tree = {"a": {"$object": f"{__name__}:Counting", "arguments": {}}, "b": {"$callable": "os:getcwd"}}

    assert "'os:getcwd', which this program has not registered" in refused(tree)
    assert made == [1]


HOSTILE = [
    "os:system",
    "posix:system",
    "builtins:exec",
    "builtins:eval",
    "builtins:getattr",
    "subprocess:Popen",
    "importlib:import_module",
    "torch:load",
    "torch.hub:load",
    "canary_module:touch",  # not imported: importing it would make the file
    "here:Unregistered",
    "here:Registered.__init__.__globals__",
    "here:Registered.method",
    "here:Registered.__class__",
    "here:",
    ":Registered",
    "Registered",
    "../here:Registered",
    "/etc/passwd:Registered",
    "here.Registered",
    "",
]

PROGRAM = """
import json, os, sys, types
sys.path.insert(0, sys.argv[1])
from train_manager import recorded
from train_manager.errors import CheckpointError
from train_manager.rebuilding.making import rebuild

here = types.ModuleType("here")
sys.modules["here"] = here
def touch(*args, **kwargs):
    open("canary", "w").close()
for name, init in [("Unregistered", touch), ("Registered", lambda self, x=None: None)]:
    setattr(here, name, type(name, (), dict(__init__=init, method=touch, __module__="here")))
recorded(here.Registered)

def trees(name):
    arguments = {"x": "touch canary"}
    yield {"$object": name, "arguments": arguments}
    yield {"$object": name, "arguments": {"args": {"$tuple": ["touch canary"]}}}
    yield {"$object": "here:Registered", "arguments": {"x": {"$object": name, "arguments": arguments}}}
    yield {"$object": "here:Registered", "arguments": {"x": {"$callable": name}}}
    yield {"$object": "here:Registered", "arguments": {"x": {"$enum": [name, "x"]}}}
    yield {"$callable": name, "arguments": {"x": "touch canary"}}
    yield {"$dict": [[{"$callable": name}, 1]]}

def refusals(name):
    for tree in trees(name):
        try:
            rebuild(json.loads(json.dumps(tree)))
        except CheckpointError:
            yield "refused"

for number, name in enumerate(json.loads(sys.argv[2])):
    folder = os.path.join(sys.argv[1], str(number))
    os.mkdir(folder)
    if os.fork() == 0:  # a process for each name, in a folder of its own; torch is imported once
        os.chdir(folder)
        open("refused", "w").write(" ".join(refusals(name)))
        os._exit(0)
    os.wait()
"""


@pytest.fixture(scope="module")
def attacked(tmp_path_factory: pytest.TempPathFactory, fork_server: ForkServer) -> Path:
    """A folder in which each hostile name has left what its process did."""
    folder = tmp_path_factory.mktemp("attacked")
    (folder / "canary_module.py").write_text("open('canary', 'w').close()\ndef touch(*args, **kwargs): ...\n")
    done = fork_server.run(code, PROGRAM, str(folder), json.dumps([*HOSTILE, "here:Registered"]))
    assert done.code == 0, done.errors
    return folder


@pytest.mark.parametrize("name", HOSTILE)
def test_a_name_that_the_program_has_not_registered_is_refused_and_nothing_runs(name: str, attacked: Path) -> None:
    folder = attacked / str(HOSTILE.index(name))

    assert (folder / "refused").read_text().split() == ["refused"] * 7
    assert not (folder / "canary").exists()


def test_the_same_places_take_a_registered_name(attacked: Path) -> None:
    places = (attacked / str(len(HOSTILE)) / "refused").read_text().split()

    assert len(places) == 2  # an argument that it lacks, and a class that is not an enum


# ---- trees that this library did not write ---------------------------------------------------------------------------


def nested(depth: int) -> Any:
    tree: Any = []
    for _ in range(depth):
        tree = {"$tuple": [tree]}
    return tree


BASE: dict[str, Any] = {"$object": f"{HERE}:Base", "arguments": {}}


@pytest.mark.parametrize(
    ("tree", "message"),
    [
        ({"$eval": "1"}, "the top: '$eval' is not a form with this content"),
        ({"$object": f"{HERE}:Base"}, "the top: '$object' is not a form with this content"),
        ({**BASE, "state": {}}, "the top: '$object' is not a form with this content"),
        ({**BASE, "$eval": {}}, "the top: it has the marks $object, $eval"),
        ({"$object": 3, "arguments": {}}, "the top: '$object' is not a form with this content"),
        ({"$object": f"{HERE}:Base", "arguments": []}, "the top: '$object' is not a form with this content"),
        ({"x": {1: 2}}, "x: it is a dict, which JSON does not have"),
        ({"$tuple": "abc"}, "the top: '$tuple' is not a form with this content"),
        ({"$same": [{}]}, "the top: '$same' is not a form with this content"),
        ({"$enum": [f"{HERE}:Colour"]}, "the top: '$enum' is not a form with this content"),
        ({"$tensor": "model.weight"}, "the top: '$tensor' is not a form with this content"),
        ({"$not_rebuildable": "x", "described": 3}, "the top: '$not_rebuildable' is not a form with this content"),
        ([b"x"], "0: it is a bytes, which JSON does not have"),
        ([object()], "0: it is a object, which JSON does not have"),
        (nested(300), "0.0.0.0.0.0.0.0 is nested more than 100 deep"),
    ],
    ids=range(15),
)
def test_a_foreign_tree_is_refused_with_the_place(tree: Any, message: str) -> None:
    what, cure = refused(tree).splitlines()

    assert what.startswith(f"these are not recorded parameters: {message}")
    assert cure == "  nothing was made of it; take another checkpoint, or build the objects yourself"


REFERS_TO_ITSELF = "the recorded parameters refer to themselves"


@pytest.mark.parametrize(
    ("tree", "message"),
    [
        ({"$float": "0x1"}, "x: '0x1'"),
        ({"$dict": [[1]]}, "x: it must be a list of pairs"),
        ({"$dtype": "torch.load"}, "x is 'torch.load', which is not a dtype of this PyTorch"),
        ({"$device": "meta; rm"}, "x is 'meta; rm', which is not a device of this PyTorch"),
        ({"$device": "nonsense"}, "x is 'nonsense', which is not a device of this PyTorch"),
        ({"$numbers": [["a"], "torch.float32"]}, "x is not a tensor of torch.float32: "),
        ({"$set": [[1]]}, "x has items that no set can have"),
        ({"$dict": [[[1], 1]]}, "x: unhashable type: 'list'"),
        ({"$enum": [f"{HERE}:Colour", "GREN"]}, f"x is 'GREN', which {HERE}:Colour does not have"),
        ({"$enum": [f"{HERE}:Base", "__init__"]}, f"x is '__init__', which {HERE}:Base does not have"),
        ({"$object": f"{HERE}:scaled_loss", "arguments": {}}, f"x is made by {HERE}:scaled_loss, which is not a class"),
        ({"$same": []}, REFERS_TO_ITSELF),
        ({"$same": ["x"]}, REFERS_TO_ITSELF),
        ({"$object": f"{HERE}:Base", "arguments": {"size": {"$same": ["x"]}}}, REFERS_TO_ITSELF),
        ({"$same": ["y"]}, "y is referred to, but is given, or not there"),
    ],
    ids=range(15),
)
def test_a_value_that_cannot_be_is_refused_with_its_place(tree: Any, message: str) -> None:
    assert refused({"x": tree}).startswith(message)


MARKS = ["object", "callable", "tuple", "dict", "OrderedDict", "set", "enum", "same", "numbers", "dtype", "device"]
MARKS += ["float", "int", "bytes", "path", "not_rebuildable"]


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=10),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(st.sampled_from(["arguments", "x", *(f"${mark}" for mark in MARKS)]), inner, max_size=3)
            | st.builds(lambda mark, given: {f"${mark}": given}, st.sampled_from(MARKS), inner)
            | st.builds(lambda given: {**BASE, "arguments": {"size": given}}, inner)
        ),
        max_leaves=12,
    )
)
def test_any_json_is_rebuilt_or_refused(tree: Any) -> None:
    with suppress(CheckpointError):
        rebuild(tree)
