from __future__ import annotations

from typing import Any

import pytest
import torch

from train_manager import Endless, InMemory, Interleaved, Rows, SeededDataLoader, Together
from train_manager.data.numbered import examples_at, numbers_examples

X = torch.arange(10) * 10


class Squares:
    def __len__(self) -> int:
        return 10

    def __getitem__(self, number: int) -> Any:
        return X[number] + (torch.rand(()) * 0).long()  # which draws


DATA = {
    "InMemory": InMemory(X, batch_size=4),
    "Rows": Rows(Squares(), batch_size=4, shuffle=True),
    "SeededDataLoader": SeededDataLoader(Squares(), batch_size=4),
    "SeededDataLoader with an own collate": SeededDataLoader(Squares(), batch_size=4, collate_fn=torch.stack),
    "Endless": Endless(InMemory(X, batch_size=4)),
}


@pytest.mark.parametrize("data", DATA.values(), ids=DATA)
def test_examples_are_given_by_their_numbers_and_nothing_is_moved(data: Any) -> None:
    state = torch.get_rng_state()

    assert numbers_examples(data)
    assert examples_at(data, [7, 3]).tolist() == [70, 30]
    assert torch.get_rng_state().equal(state)


def test_several_sets_are_asked_by_the_name_of_the_set() -> None:
    data = Interleaved({"one": InMemory(X, batch_size=2), "two": InMemory(X + 1, batch_size=2)})

    assert numbers_examples(data)
    assert examples_at(data, [2], "two").tolist() == [21]


@pytest.mark.parametrize("data", [[X], Together({"one": InMemory(X, batch_size=2)}), Interleaved({"one": [X]})])
def test_other_data_do_not_number_their_examples(data: Any) -> None:
    assert not numbers_examples(data)


def test_data_that_cannot_be_asked_give_none() -> None:
    assert examples_at([X], [0]) is None
