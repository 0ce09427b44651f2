from __future__ import annotations

import copy
from collections.abc import Iterator
from itertools import islice

import pytest
import torch

from train_manager import Endless, InMemory, InputError, Interleaved
from train_manager.data.batch import FromSource
from train_manager.data.named_sets import NEXT_PASS
from train_manager.testing import tiny_manager


def test_pass_follows_pass() -> None:
    assert list(islice(Endless([1, 2, 3]), 7)) == [1, 2, 3, 1, 2, 3, 1]


def test_each_pass_over_data_in_memory_has_an_order_of_its_own() -> None:
    data = Endless(InMemory(torch.arange(50), batch_size=50, shuffle=True))
    first, second = islice(data, 2)

    assert not first.equal(second)


def test_it_has_no_length() -> None:
    with pytest.raises(TypeError):
        len(Endless([1]))  # type: ignore[arg-type]


def test_the_epoch_is_passed_on_and_every_pass_within_it_has_an_order_of_its_own() -> None:
    def orders(epoch: int) -> list[list[int]]:
        data = Endless(InMemory(torch.arange(50), batch_size=50, shuffle=True))
        data.set_epoch(epoch)
        return [batch.tolist() for batch in islice(data, 2)]

    assert orders(1) == orders(1)
    assert len({tuple(order) for epoch in (0, 1) for order in orders(epoch)}) == 4


def test_the_numbers_of_the_examples_are_those_of_its_data() -> None:
    data = Endless(InMemory(torch.arange(4), batch_size=2))
    list(islice(data, 2))

    assert data.example_index.tolist() == [2, 3]
    assert not hasattr(Endless([1]), "example_index")


def test_its_data_are_reset_between_its_passes() -> None:
    class Resettable:
        resets = 0

        def __iter__(self) -> Iterator[int]:
            yield self.resets

        def reset(self) -> None:
            self.resets += 1

    assert list(islice(Endless(Resettable()), 3)) == [0, 1, 2]


def test_each_pass_is_told_its_epoch_also_after_a_resume() -> None:
    class Told:
        def __init__(self) -> None:
            self.epochs: list[int] = []

        def __iter__(self) -> Iterator[int]:
            yield from range(2)

        def set_epoch(self, epoch: int) -> None:
            self.epochs.append(epoch)

    first, resumed = Told(), Told()
    data = Endless(first)
    list(islice(data, 5))
    again = Endless(resumed)
    again.load_state_dict(data.state_dict())
    next(iter(again))

    assert (first.epochs, resumed.epochs) == ([0, NEXT_PASS, 2 * NEXT_PASS], [2 * NEXT_PASS])


def test_the_batches_of_sets_in_turns_keep_their_names() -> None:
    (batch,) = islice(Endless(Interleaved({"a": [1]})), 1)

    assert batch == FromSource("a", 1)


def test_nothing_is_read_beyond_what_is_asked_for() -> None:
    read = []

    class Numbers:
        def __iter__(self) -> Iterator[int]:
            for number in range(9):
                read.append(number)
                yield number

    list(islice(Endless(Numbers()), 2))

    assert read == [0, 1]


def test_data_that_give_nothing_are_refused() -> None:
    with pytest.raises(InputError) as caught:
        next(iter(Endless([])))

    assert str(caught.value) == (
        "Endless's data gave no batch in pass 1 of an epoch\n"
        "  it needs at least one batch; with drop_last, are there fewer examples than one batch?"
    )


def test_a_copy_begins_where_it_was_set() -> None:
    data = Endless([1, 2, 3])
    stream = iter(data)
    next(stream)

    assert next(iter(copy.deepcopy(data))) == 1


def test_what_can_be_read_once_is_refused() -> None:
    with pytest.raises(InputError) as caught:
        Endless(number for number in range(3))

    assert str(caught.value) == (
        "Endless was given a generator, which can be read once\n  give a list, a DataLoader, or an object with __iter__"
    )


def test_it_is_refused_as_data_to_evaluate() -> None:
    with pytest.raises(InputError) as caught:
        tiny_manager(eval_data={"valid": Endless([1])})

    assert str(caught.value) == (
        "eval_data['valid'] (Endless) has no end, so its evaluation would not end either\n  give data that ends"
    )
