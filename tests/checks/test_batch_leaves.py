from __future__ import annotations

from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor

from train_manager.checks.batch_leaves import leaves_of, put_together


class Pair(NamedTuple):
    first: Tensor
    second: Tensor


@dataclass(frozen=True)
class Text:
    words: Tensor
    language: str


X = torch.arange(4.0)

BATCHES: dict[str, Any] = {
    "a tensor": X,
    "a dict": {"x": X, "kind": None},
    "a list in a tuple": (X, [X, X]),
    "a list of numbers": (X, [3, 4]),
    "a named tuple": Pair(X, X),
    "a frozen dataclass": Text(X, "en"),
    "an object": SimpleNamespace(words=X, inside={"mask": X}),
}


@pytest.mark.parametrize("name", BATCHES)
def test_a_batch_is_put_together_as_what_it_was(name: str) -> None:
    batch = BATCHES[name]
    other = put_together(batch, {path: X + 1 for path, _ in leaves_of(batch)})

    assert type(other) is type(batch)
    assert all(torch.equal(leaf, X + 1) for _, leaf in leaves_of(other))
    assert not any(isinstance(leaf, Tensor) and torch.equal(leaf, X + 1) for _, leaf in leaves_of(batch))
