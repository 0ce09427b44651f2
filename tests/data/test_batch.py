"""A batch: its parts, its device, and the structure that it shares with the first one."""

from __future__ import annotations

from collections import OrderedDict, defaultdict, namedtuple
from typing import Any

import pytest
import torch
from torch import nn

from train_manager import InputError
from train_manager.data.batch import SameStructure, Structures, tensors_in, to_device, unpack
from train_manager.testing import tiny_manager

META = torch.device("meta")
X, Y = torch.zeros(8, 3), torch.zeros(8)
Pair = namedtuple("Pair", "x y")


# ---- inputs and targets ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("batch", "parts"),
    [
        ((1, 2), {"inputs": 1, "targets": 2}),
        ([1, 2], {"inputs": 1, "targets": 2}),
        (Pair(1, 2), {"inputs": 1, "targets": 2}),
        ({"inputs": 1, "targets": 2, "name": "a"}, {"inputs": 1, "targets": 2}),
        ({"inputs": 1}, {"inputs": 1}),
        ({"pixels": 1, "targets": 2}, {"inputs": {"pixels": 1, "targets": 2}}),
        ((1, 2, 3), {"inputs": (1, 2, 3)}),
        (1, {"inputs": 1}),
    ],
)
def test_the_parts_of_a_batch(batch: Any, parts: dict[str, Any]) -> None:
    assert unpack(batch) == parts


# ---- onto a device ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "batch",
    [
        torch.zeros(1),
        [torch.zeros(1), torch.zeros(1)],
        (torch.zeros(1), [torch.zeros(1)]),
        {"x": torch.zeros(1), "more": {"y": torch.zeros(1)}},
        OrderedDict(x=torch.zeros(1)),
        defaultdict(torch.Tensor, x=torch.zeros(1)),
        Pair(torch.zeros(1), torch.zeros(1)),
    ],
)
def test_every_tensor_of_a_batch_goes_to_the_device(batch: Any) -> None:
    assert {tensor.device for tensor in tensors_in(to_device(batch, META))} == {META}


@pytest.mark.parametrize(
    "batch", [[], (1,), {"x": 1}, OrderedDict(x=1), defaultdict(int, x=1), Pair(1, 2), "text", None]
)
def test_a_batch_keeps_its_type_and_what_is_no_tensor(batch: Any) -> None:
    moved = to_device(batch, META)

    assert (type(moved), moved) == (type(batch), batch)


def test_a_defaultdict_keeps_its_default() -> None:
    assert to_device(defaultdict(int), META)["missing"] == 0


def test_an_object_that_knows_how_to_move_is_asked_to() -> None:
    class Graph:
        place = torch.device("cpu")

        def to(self, device: torch.device) -> Graph:
            moved = Graph()
            moved.place = device
            return moved

    assert to_device([Graph()], META)[0].place == META


def test_tensors_come_in_the_order_of_the_batch() -> None:
    a, b, c = torch.zeros(1), torch.zeros(2), torch.zeros(3)

    assert [len(tensor) for tensor in tensors_in({"x": [a, "text"], "y": (b, {"z": c})})] == [1, 2, 3]


# ---- the structure ------------------------------------------------------------------------------------------------


def check(*batches: Any) -> None:
    same = SameStructure("train_data")
    for step, batch in enumerate(batches, start=1):
        same.check(unpack(batch), step)


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (X, X[:3]),
        ((X, Y), (X[:3], Y[:3])),
        ((X, Y), [X, Y]),
        ({"a": X, "b": Y}, {"b": Y, "a": X}),
        (([X, X], Y), ([X[:3], X[:3]], Y[:3])),
        ((X, ["a", "b"]), (X, ["a"])),
        ([(X, Y), (X, Y), (X, Y)], [(X, Y)]),
        ([{"a": X}], [{"a": X}] * 3),
        (([X, X, X], [{"boxes": Y}] * 3), ([X], [{"boxes": Y}])),
        ({"pictures": [X, X], "texts": ["a", "b"]}, {"pictures": [X], "texts": ["a"]}),
        ((1, 2.0), (3, "text")),
    ],
    ids=[
        "rows",
        "rows of a pair",
        "list for tuple",
        "order of keys",
        "rows of several inputs",
        "texts",
        "list of pairs",
        "list of dicts",
        "lists of pictures and boxes",
        "dict of lists",
        "values",
    ],
)
def test_what_may_differ(first: Any, second: Any) -> None:
    check(first, second, first)


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ((X, Y), (X, Y, Y)),
        ((X, Y), X),
        ((X, Y), (X, None)),
        ((X, Y), (X, ["a"])),
        ({"a": X, "b": Y}, {"a": X}),
        ({"a": X}, {"b": X}),
        ({"a": X, "b": Y}, (X, Y)),
        (([X, X], Y), ([X, X, X], Y)),
        ({"inputs": {"a": X}, "targets": Y}, {"inputs": {"b": X}, "targets": Y}),
        (Pair(X, Y), (X, Y, Y)),
    ],
)
def test_what_may_not_differ(first: Any, second: Any) -> None:
    with pytest.raises(InputError):
        check(first, first, second)
    with pytest.raises(InputError):
        check(second, first)


def test_the_message_shows_both_and_the_step() -> None:
    with pytest.raises(InputError) as caught:
        check((X, Y), (X, Y), (X, [Y, Y]))

    assert str(caught.value) == (
        "train_data gave a batch of another structure in step 3\n"
        "  first  {'inputs': tensor, 'targets': tensor}\n"
        "  now    {'inputs': tensor, 'targets': (tensor, tensor)}\n"
        "  the parts and keys of batches must stay the same in a run; shapes may differ"
    )


def test_a_flat_batch_is_compared_by_the_types_of_its_parts_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    same = SameStructure("train_data")
    same.check({"inputs": X, "targets": Y}, 1)
    monkeypatch.setattr("train_manager.data.batch.structure_of", None)

    same.check({"inputs": X, "targets": Y}, 2)


def test_sets_of_data_may_differ_from_each_other() -> None:
    structures = Structures()
    structures["pictures"].check({"inputs": X, "targets": Y}, 1)
    structures["texts"].check({"inputs": X}, 2)

    with pytest.raises(InputError, match=r"^texts gave a batch of another structure in step 3"):
        structures["texts"].check({"inputs": X, "targets": Y}, 3)


@pytest.mark.parametrize("others", [[(X, [Y, Y])], [(X, [Y, Y]), (X, Y)]], ids=["at the end", "at the beginning"])
def test_a_training_refuses_a_pair_of_tensors_beside_another_structure(others: list[Any]) -> None:
    batches = [*others, (X, Y), (X, Y), *others]
    tm = tiny_manager(
        model=nn.Linear(3, 1), train_data=batches, eval_data=None, loss=lambda prediction: prediction.sum()
    )
    with pytest.raises(InputError, match="another structure"):
        tm.train()
