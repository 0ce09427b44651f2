from __future__ import annotations

import pytest
import torch

from train_manager import InMemory, InputError, Interleaved
from train_manager.trials.first_batches import FirstBatches


def test_it_gives_as_many_batches_as_there_are_pass_after_pass() -> None:
    first = FirstBatches(["a", "b"], "train_data", most=3)

    assert (len(first), [*first, *first]) == (2, ["a", "b", "a", "b"])


def test_a_batch_is_a_copy() -> None:
    batches = [(torch.ones(2), torch.ones(2))]
    FirstBatches(batches, "train_data", most=1).batches[0][0].mul_(2)

    assert batches[0][0].tolist() == [1, 1]


def test_each_batch_has_the_numbers_of_its_examples() -> None:
    first = FirstBatches(InMemory(torch.arange(4), batch_size=2), "train_data", most=2)

    assert [(batch.tolist(), first.example_index.tolist()) for batch in first] == [([0, 1], [0, 1]), ([2, 3], [2, 3])]


def test_a_batch_of_several_sets_comes_without_the_name_of_its_set() -> None:
    assert FirstBatches(Interleaved({"web": [1], "books": [2]}), "train_data", most=2).batches == [1, 2]


def test_data_without_a_batch_are_refused() -> None:
    with pytest.raises(InputError, match="train_data gave no batch to try"):
        FirstBatches([], "train_data", most=2)
