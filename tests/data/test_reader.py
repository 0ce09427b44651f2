"""One set of data, read pass after pass: where a pass ends, which number it has, and where a state continues."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from itertools import count
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

from train_manager import InMemory
from train_manager.data.reader import END, Reader


class Told:
    """Two numbers for each pass; its length is unknown, and it keeps the numbers of its passes."""

    def __init__(self) -> None:
        self.epochs: list[int] = []

    def __iter__(self) -> Iterator[int]:
        yield from range(2)

    def set_epoch(self, epoch: int) -> None:
        self.epochs.append(epoch)


def orders(reader: Reader, batches: int) -> list[Any]:
    return [batch.tolist() for batch in (reader.read_on() for _ in range(batches))]


def shuffled() -> InMemory:
    return InMemory(torch.arange(10), batch_size=4, shuffle=True)


# ---- passes ----------------------------------------------------------------------------------------------------------


def test_each_pass_ends_and_the_next_one_begins() -> None:
    reader = Reader("data", [1, 2])

    assert [reader.read() for _ in range(5)] == [1, 2, END, 1, 2]


def test_within_an_epoch_only_the_end_of_the_first_pass_is_told_and_only_if_reading_has_found_it() -> None:
    known, found = Reader("data", [1, 2]), Reader("data", Told())

    assert [known.read_of_epoch() for _ in range(5)] == [1, 2, 1, 2, 1]
    assert [found.read_of_epoch() for _ in range(6)] == [0, 1, END, 0, 1, 0]


def test_a_generator_that_others_refer_to_is_closed_as_its_pass_is_left() -> None:
    generator = (number for number in range(3))
    reader = Reader("data", generator)
    reader.read()
    reader.leave()

    assert (next(generator, END), reader.is_open) == (END, False)


def test_once_the_passes_are_left_the_next_one_is_the_first_again() -> None:
    reader = Reader("data", Told(), 0, 1)
    for _ in range(3):
        reader.read_on()
    reader.leave()
    reader.read_on()

    assert (reader.passes, reader.given, reader.data.epochs) == (0, 1, [0, 1, 0])


# ---- a state ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("next_pass", "place"), [(1, (1, 0)), (0, (0, 2))])
def test_after_the_last_batch_the_place_is_the_next_pass_if_passes_follow_each_other(
    next_pass: int, place: tuple[int, int]
) -> None:
    reader = Reader("data", [1, 2], 0, next_pass)
    reader.read()
    reader.read()
    state = reader.state()

    assert (state["passes"], state["given"]) == place


def between_two_passes(generator: torch.Generator) -> Reader:
    return Reader("data", DataLoader(TensorDataset(torch.arange(9)), shuffle=True, generator=generator))


def test_a_state_of_the_time_between_two_passes_waits_for_the_next_one_whatever_is_left_before() -> None:
    first = between_two_passes(torch.Generator().manual_seed(1))
    while first.read() is not END:
        pass
    data = between_two_passes(torch.Generator()).data
    resumed = Reader("data", data, state={**copy.deepcopy(first.state()), "data": "its own"})
    resumed.leave()

    assert (resumed.is_resumed, resumed.state()["data"]) == (True, "its own")
    assert resumed.read() == first.read()


def test_a_state_within_a_pass_is_void_once_this_pass_is_left() -> None:
    first = Reader("data", shuffled())
    beginning = orders(first, 1)
    resumed = Reader("data", shuffled(), state=first.state())
    resumed.leave()

    assert resumed.state()["given"] == 0
    assert orders(resumed, 1) == beginning


@pytest.mark.parametrize(("counts_off", "following"), [(True, 2), (False, 0)])
def test_endless_data_without_a_state_are_counted_off_only_if_the_reader_is_told_to(
    counts_off: bool, following: int
) -> None:
    first = Reader("data", count())
    first.read()
    first.read()
    resumed = Reader("data", count(), state=first.state(), counts_off_endless=counts_off)

    assert resumed.read() == following


def test_data_are_given_their_state_only_as_they_are_read() -> None:
    first, data = Reader("data", shuffled()), shuffled()
    orders(first, 1)
    Reader("data", data, state=first.state()).begin_pass()

    assert data.batches_done == 0
