from __future__ import annotations

from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor

from train_manager.checks.batch_leaves import copied, leaves_of, name_of, put_together


class Pair(NamedTuple):
    first: Tensor
    second: Tensor


@dataclass(frozen=True)
class Text:
    words: Tensor
    language: str


X = torch.arange(4.0)

BATCHES: dict[str, tuple[Any, list[str]]] = {
    "a tensor": (X, [""]),
    "a dict": ({"x": X, "kind": None}, ["x"]),
    "a list in a tuple": ((X, [X, X]), ["0", "1.0", "1.1"]),
    "a list of numbers": ((X, [3, 4]), ["0", "1"]),
    "a named tuple": (Pair(X, X), ["first", "second"]),
    "a frozen dataclass": (Text(X, "en"), ["words"]),
    "an object": (SimpleNamespace(words=X, inside={"mask": X}), ["words", "inside.mask"]),
}


@pytest.mark.parametrize("name", BATCHES)
def test_the_leaves_of_a_batch_have_names(name: str) -> None:
    batch, names = BATCHES[name]

    assert [name_of(path) for path, _ in leaves_of(batch)] == names


@pytest.mark.parametrize("name", BATCHES)
def test_a_batch_is_put_together_as_what_it_was(name: str) -> None:
    batch, _ = BATCHES[name]
    other = put_together(batch, {path: X + 1 for path, _ in leaves_of(batch)})

    assert type(other) is type(batch)
    assert all(torch.equal(leaf, X + 1) for _, leaf in leaves_of(other))
    assert not any(isinstance(leaf, Tensor) and torch.equal(leaf, X + 1) for _, leaf in leaves_of(batch))


def test_a_copy_shares_no_tensor_and_no_container() -> None:
    batch: dict[str, Any] = {"x": [X], "y": X}
    other = copied(batch)
    other["x"].clear()
    other["y"] += 1

    assert len(batch["x"]) == 1
    assert torch.equal(X, torch.arange(4.0))
