"""What is written later is what was there when it was copied."""

from __future__ import annotations

from collections import Counter, OrderedDict
from typing import Any

import numpy as np
import pytest
import torch

from train_manager.checkpoints.copies import copy_state


def test_a_copy_does_not_follow_the_training() -> None:
    model = torch.nn.Linear(2, 2)
    optimizer: dict[str, Any] = {"steps": [torch.zeros(1)], "array": np.zeros(2), "pair": (1, "a")}
    state = {"model": model.state_dict(), "optimizer": optimizer}
    before = model.weight.tolist()
    copy = copy_state(state)
    with torch.no_grad():
        model.weight += 1
    optimizer["steps"][0] += 1
    optimizer["array"] += 1

    assert copy["model"]["weight"].tolist() == before
    assert copy["optimizer"]["steps"][0].item() == 0
    assert copy["optimizer"]["array"].tolist() == [0, 0]
    assert copy["optimizer"]["pair"] == (1, "a")


def test_a_copy_has_the_same_types() -> None:
    copy = copy_state({"ordered": OrderedDict(a=1), 3: [None, (True, 2.5)], "empty": torch.empty(0)})

    assert type(copy["ordered"]) is OrderedDict
    assert copy[3] == [None, (True, 2.5)]
    assert copy["empty"].shape == (0,)


def test_tensors_that_are_the_same_memory_are_copied_once() -> None:
    weight = torch.rand(3, 2)
    copy = copy_state([weight, weight.detach(), weight.T, weight[1:], weight.view(2, 3)])

    assert copy[0] is copy[1]
    assert len({tensor.data_ptr() for tensor in copy}) == 4


def test_a_conjugate_is_not_taken_for_its_original() -> None:
    number = torch.tensor([1 + 2j])
    first, second = copy_state([number, number.conj()])
    assert (first.item(), second.item()) == (1 + 2j, 1 - 2j)


@pytest.mark.parametrize("value", [object(), torch.eye(2).to_sparse(), torch.empty(2, device="meta")])
def test_what_the_writer_refuses_comes_to_it_as_it_is(value: Any) -> None:
    assert copy_state({"part": value})["part"] is value


def test_a_state_that_holds_itself_is_left_to_the_writer() -> None:
    state: dict[str, Any] = {}
    state["self"] = state
    assert "self" in copy_state(state)


def test_a_copy_of_a_counter_keeps_counts_of_zero_and_below() -> None:
    copy = copy_state(Counter(seen=0, owed=-2, right=3))

    assert type(copy) is Counter
    assert dict(copy) == {"seen": 0, "owed": -2, "right": 3}
