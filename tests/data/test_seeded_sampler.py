"""The order of an epoch for a DataLoader of one's own."""

from __future__ import annotations

import pickle
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.utils.data import DataLoader

from tests.support.training import refusal
from train_manager import InMemory, Rows
from train_manager.data.seeded_dataset import Index, SeededSampler, index_in


def order(sampler: SeededSampler, epoch: int, start: int = 0) -> list[int]:
    sampler.set_epoch(epoch, start)
    return list(sampler)


@given(examples=st.integers(1, 50), seed=st.integers(0, 5), epoch=st.integers(0, 5), shuffle=st.booleans())
def test_the_order_is_that_of_in_memory_and_rows(examples: int, seed: int, epoch: int, shuffle: bool) -> None:
    in_memory = InMemory(torch.arange(examples), batch_size=examples, shuffle=shuffle, seed=seed)
    rows = Rows(range(examples), batch_size=examples, shuffle=shuffle, seed=seed)
    found = order(SeededSampler(range(examples), seed=seed, shuffle=shuffle), epoch)
    for data in (in_memory, rows):
        data.set_epoch(epoch)
        assert next(iter(data)).tolist() == found


@given(examples=st.integers(1, 50), start=st.integers(0, 60), shuffle=st.booleans())
def test_it_can_start_within_an_epoch(examples: int, start: int, shuffle: bool) -> None:
    sampler = SeededSampler(range(examples), shuffle=shuffle)

    assert order(sampler, 2, start) == order(sampler, 2)[start:]


def test_the_next_epoch_begins_at_its_start() -> None:
    sampler = SeededSampler(range(5))
    sampler.set_epoch(0, start=3)
    sampler.set_epoch(1)

    assert sorted(sampler) == [0, 1, 2, 3, 4]


def test_its_length_is_that_of_the_data_wherever_it_starts() -> None:
    sampler = SeededSampler(range(5))
    sampler.set_epoch(0, start=3)

    assert len(sampler) == 5


def test_a_pass_keeps_its_epoch_if_another_is_set_meanwhile() -> None:
    sampler = SeededSampler(range(20))
    expected = order(sampler, 0)
    sampler.set_epoch(0)
    reading = iter(sampler)
    first = next(reading)
    sampler.set_epoch(1)

    assert [first, *reading] == expected


def test_each_number_knows_its_epoch() -> None:
    sampler = SeededSampler(range(3))
    sampler.set_epoch(4)

    assert [index.epoch for index in sampler if isinstance(index, Index)] == [4, 4, 4]


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_a_number_keeps_its_epoch_on_its_way_to_a_worker(protocol: int) -> None:
    index = pickle.loads(pickle.dumps(index_in(7, epoch=3), protocol))

    assert (index, index.epoch, type(index)) == (7, 3, Index)


@pytest.mark.parametrize("container", [[1, 2, 3], (1, 2, 3), range(1, 4), torch.tensor([1, 2, 3])])
def test_any_dataset_takes_such_a_number(container: Any) -> None:
    assert container[index_in(1, epoch=9)] == 2


def test_a_loader_of_ones_own_reads_in_this_order() -> None:
    sampler = SeededSampler(range(10), seed=3)
    (batch,) = DataLoader(range(10), batch_size=10, sampler=sampler)  # type: ignore[arg-type]

    assert batch.tolist() == list(sampler)


def test_a_copy_gives_the_same_order() -> None:
    sampler = SeededSampler(range(10), seed=3)

    assert list(sampler) == list(pickle.loads(pickle.dumps(sampler)))


def test_it_shows_what_determines_the_order() -> None:
    assert repr(SeededSampler(range(1000), seed=3)) == "SeededSampler(1,000 rows, seed=3, shuffle=True)"


def test_data_without_a_length_are_refused() -> None:
    assert refusal(lambda: SeededSampler(iter([1]))) == (  # type: ignore[arg-type]
        "SeededSampler was given a list_iterator, which has no length\n"
        "  give a dataset with len(dataset) and dataset[i]"
    )


def test_a_negative_seed_and_a_negative_epoch_are_refused() -> None:
    assert refusal(lambda: SeededSampler([1], seed=-1)) == (
        "SeededSampler's seed must be a whole number of at least 0, but is -1"
    )
    assert refusal(lambda: SeededSampler([1]).set_epoch(-1)) == "epoch must be a whole number of at least 0, but is -1"
