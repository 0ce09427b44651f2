from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.nn.utils.rnn import pack_sequence

from train_manager.checks.batch_leaves import name_of
from train_manager.checks.leak_batch import ExampleBatch

X = torch.randn(8, 5)

SIZES: dict[str, tuple[Any, dict[str, Any], int, list[str]]] = {
    "a tensor": (X, {}, 8, [""]),
    "features and a label": ((X, torch.ones(8)), {}, 8, ["0", "1"]),
    "time first": ((torch.randn(3, 8, 5), torch.ones(8)), {"batch_axis": 1}, 8, ["0", "1"]),
    "a state with layers first": ((X[:, None], torch.zeros(2, 8, 6)), {}, 8, ["0", "1"]),
    "a mask that is shared": ({"x": X, "mask": torch.ones(8, 8)}, {"shared": ["mask"]}, 8, ["x"]),
    "a causal mask": ({"x": X, "mask": torch.ones(8, 8).tril()}, {}, 8, ["x"]),
    "a table beside": ((X, torch.ones(3, 5)), {}, 8, ["0"]),
    "a list of sequences": (([torch.ones(n, 2) for n in (1, 2, 3)],), {}, 3, ["0"]),
    "a list of pictures of one size": (([torch.ones(3, 4, 4)] * 5,), {}, 5, ["0"]),
    "a list of dicts": (([{"box": torch.ones(n, 4)} for n in (1, 2)],), {}, 2, ["0"]),
    "levels of features": (([torch.ones(8, 2, n) for n in (4, 2)],), {}, 8, ["0.0", "0.1"]),
    "a packed sequence": (pack_sequence([torch.ones(n, 2) for n in (3, 2, 2, 1)]), {}, 4, [""]),
    "lengths in a list": ((X, [5, 4, 3, 2, 1, 1, 1, 1]), {}, 8, ["0", "1"]),
}


@pytest.mark.parametrize("name", SIZES)
def test_the_examples_of_a_batch_are_found(name: str) -> None:
    batch, options, size, leaves = SIZES[name]
    examples = ExampleBatch(batch, **options)

    assert examples.size == size
    assert [name_of(path) for path in examples.leaves] == leaves


def test_fewer_examples_are_the_first_of_each_leaf() -> None:
    batch = {"x": X, "names": list("abcdefgh"), "table": torch.ones(3)}
    examples = ExampleBatch(batch)
    fewer = examples.with_values(examples.first(2))

    assert torch.equal(fewer["x"], X[:2])
    assert fewer["names"] == ["a", "b"]
    assert len(fewer["table"]) == 3


def test_what_is_left_as_it_is_can_be_told() -> None:
    assert [name_of(path) for path in ExampleBatch((X, torch.ones(3, 5))).left] == ["1"]
