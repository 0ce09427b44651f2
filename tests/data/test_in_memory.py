"""Batches of arrays in memory: what is in them, in which order, and what is refused."""

from __future__ import annotations

import copy
import random
import warnings
from itertools import islice
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st
from torch import Tensor

from tests.support.training import refusal
from train_manager import InMemory


def numbers(data: InMemory) -> list[int]:
    """The rows of one pass over data whose rows are numbers."""
    return [number for batch in data for number in batch.tolist()]


def shuffled(examples: int = 50, **options: Any) -> InMemory:
    return InMemory(torch.arange(examples), **{"batch_size": 8, "shuffle": True, **options})


# ---- what is in a batch ------------------------------------------------------------------------------------------


@given(st.integers(1, 60), st.integers(1, 70), st.booleans(), st.integers(0, 2**70), st.integers(0, 2**40))
def test_each_example_comes_exactly_once_in_an_epoch(
    examples: int, batch_size: int, shuffle: bool, seed: int, epoch: int
) -> None:
    data = InMemory(torch.arange(examples), batch_size=batch_size, shuffle=shuffle, seed=seed)
    data.set_epoch(epoch)
    batches = list(data)

    assert sorted(number for batch in batches for number in batch.tolist()) == list(range(examples))
    assert {len(batch) for batch in batches[:-1]} <= {batch_size}
    assert len(batches) == len(data)


@given(st.integers(1, 60), st.integers(1, 60), st.booleans())
def test_with_drop_last_all_batches_are_full(examples: int, batch_size: int, shuffle: bool) -> None:
    assume(examples >= batch_size)
    data = InMemory(torch.arange(examples), batch_size=batch_size, shuffle=shuffle, drop_last=True)
    batches = list(data)

    assert [len(batch) for batch in batches] == [batch_size] * (examples // batch_size)
    assert len(set(torch.cat(batches).tolist())) == len(torch.cat(batches))
    assert len(batches) == len(data)


@pytest.mark.parametrize("shuffle", [False, True])
def test_the_rows_of_all_arrays_stay_together(shuffle: bool) -> None:
    x = torch.arange(20).reshape(10, 2)
    for inputs, targets in InMemory(x, x[:, 0] * 10, batch_size=3, shuffle=shuffle):
        assert (inputs[:, 0] * 10).equal(targets)


def test_without_shuffle_the_rows_come_as_they_are() -> None:
    assert numbers(InMemory(torch.arange(7), batch_size=3)) == list(range(7))


def test_one_array_gives_tensors_several_give_tuples_and_a_dict_gives_dicts() -> None:
    x = torch.zeros(2, 3)

    assert isinstance(next(iter(InMemory(x, batch_size=2))), Tensor)
    assert [type(batch) for batch in InMemory(x, x, x, batch_size=2)] == [tuple]
    assert [list(batch) for batch in InMemory({"inputs": x, "mask": x}, batch_size=2)] == [["inputs", "mask"]]


@pytest.mark.parametrize("shuffle", [False, True])
def test_what_is_done_to_a_batch_in_place_does_not_change_the_data(shuffle: bool) -> None:
    x = torch.ones(4, 2)
    for batch in InMemory(x, batch_size=4, shuffle=shuffle):
        batch.zero_()

    assert x.equal(torch.ones(4, 2))


def test_without_copies_batches_in_order_are_parts_of_the_arrays() -> None:
    x = torch.arange(7)
    batches = list(InMemory(x, batch_size=3, copy=False))

    assert torch.cat(batches).equal(x)
    assert [batch.data_ptr() for batch in batches] == [x[start:].data_ptr() for start in (0, 3, 6)]


def test_a_change_in_place_of_a_part_of_the_arrays_is_refused_at_the_next_batch() -> None:
    batches = iter(InMemory(torch.ones(4, 2), batch_size=2, copy=False))
    next(batches).zero_()

    assert refusal(lambda: next(batches)) == (
        "a batch of InMemory was changed in place, and with copy=False it is a part of the data\n"
        "  leave out copy=False, and give the data anew: what was changed stays changed"
    )


def test_so_is_a_change_of_the_last_part() -> None:
    batches = iter(InMemory(torch.ones(2, 2), batch_size=2, copy=False))
    next(batches).zero_()

    assert "changed in place" in refusal(lambda: next(batches))


def test_the_arrays_of_parts_may_change_between_two_passes() -> None:
    x = torch.zeros(4)
    data = InMemory(x, batch_size=2, copy=False)
    numbers(data)
    x += 1

    assert numbers(data) == [1, 1, 1, 1]


def test_without_copies_shuffled_batches_may_be_changed() -> None:
    x = torch.ones(4, 2)
    for batch in InMemory(x, batch_size=2, shuffle=True, copy=False):
        batch.zero_()

    assert x.equal(torch.ones(4, 2))


def test_a_transform_makes_each_batch() -> None:
    x = torch.arange(5)
    data = InMemory({"inputs": x}, batch_size=2, transform=lambda batch: {**batch, "rows": len(batch["inputs"])})

    assert [batch["rows"] for batch in data] == [2, 2, 1]


def test_a_transform_that_is_not_a_function_is_refused() -> None:
    assert refusal(lambda: InMemory(torch.ones(2), batch_size=2, transform=0.5)) == (  # type: ignore[arg-type]
        "the transform of InMemory must be a function of a batch, but is a float\n  transform=lambda batch: ..."
    )


def test_a_transform_that_returns_nothing_is_refused() -> None:
    def forgetful(batch: Tensor) -> None:
        batch.neg_()

    data = InMemory(torch.ones(2), batch_size=2, transform=forgetful)

    assert refusal(lambda: next(iter(data))) == (
        "the transform of InMemory, forgetful, returned None in place of a batch\n"
        "  return the batch, also if it was changed in place"
    )


def test_a_numpy_array_is_taken_without_a_copy() -> None:
    array = np.zeros((4, 2), dtype=np.float32)
    data = InMemory(array, batch_size=4)
    array += 1

    assert next(iter(data)).equal(torch.ones(4, 2))


@pytest.mark.parametrize(
    "array",
    [
        np.arange(4)[::-1],
        np.arange(4).astype(">i4"),
        np.broadcast_to(np.arange(1), (4,)),
        np.arange(8).reshape(4, 2).T,
    ],
    ids=["turned", "foreign bytes", "read-only", "transposed"],
)
def test_a_numpy_array_of_any_layout_is_taken(array: np.ndarray[Any, Any]) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        batch = next(iter(InMemory(array, batch_size=4)))

    assert batch.tolist() == array.tolist()


def test_the_arrays_move_to_the_device_once() -> None:
    data = InMemory(torch.zeros(4, 2), torch.zeros(4), batch_size=2, device="meta", shuffle=True)

    assert {part.device.type for batch in data for part in batch} == {"meta"}


# ---- in which order ----------------------------------------------------------------------------------------------


def test_the_order_is_a_function_of_seed_and_epoch() -> None:
    first, second = shuffled(seed=3), shuffled(seed=3)
    in_turn = [numbers(first) for _ in range(3)]
    second.set_epoch(2)

    assert numbers(second) == in_turn[2]


def test_every_epoch_and_every_seed_has_an_order_of_its_own() -> None:
    orders = [numbers(data) for data in (shuffled(seed=0), shuffled(seed=1)) for _ in range(3)]

    assert len({tuple(order) for order in orders}) == 6


def test_the_order_stays_the_same_from_release_to_release() -> None:
    """Else a training that is resumed after an update would see examples twice."""
    assert numbers(shuffled(10, seed=7)) == [1, 2, 0, 9, 8, 4, 7, 6, 3, 5]


def test_the_order_does_not_depend_on_the_batch_size() -> None:
    assert numbers(shuffled(batch_size=3)) == numbers(shuffled(batch_size=50))


def test_no_random_state_is_touched() -> None:
    states = random.getstate(), np.random.get_state()[1].tolist(), torch.get_rng_state()  # type: ignore[index]
    numbers(shuffled())
    after = random.getstate(), np.random.get_state()[1].tolist(), torch.get_rng_state()  # type: ignore[index]

    assert states[:2] == after[:2]
    assert states[2].equal(after[2])


def test_no_random_state_decides_the_order() -> None:
    torch.manual_seed(0)
    first = numbers(shuffled())
    torch.manual_seed(1)

    assert numbers(shuffled()) == first


def test_a_pass_that_is_broken_off_is_an_epoch_too() -> None:
    broken, whole = shuffled(), shuffled()
    next(iter(broken))
    numbers(whole)

    assert numbers(broken) == numbers(whole)


def test_two_passes_at_the_same_time_do_not_disturb_each_other() -> None:
    data, other = shuffled(), shuffled()
    both = list(zip(data, data, strict=True))
    expected = [list(other), list(other)]

    assert all(a.equal(b) for (a, _), b in zip(both, expected[0], strict=True))
    assert all(a.equal(b) for (_, a), b in zip(both, expected[1], strict=True))


# ---- stopped and resumed -----------------------------------------------------------------------------------------


def test_naming_the_epoch_that_was_loaded_keeps_its_place() -> None:
    first, resumed = shuffled(), shuffled()
    next(iter(first))
    resumed.load_state_dict(first.state_dict())
    resumed.set_epoch(0)

    assert len(list(resumed)) == 6


def test_naming_another_epoch_begins_it_from_the_start() -> None:
    first, resumed = shuffled(), shuffled()
    next(iter(first))
    resumed.load_state_dict(first.state_dict())
    resumed.set_epoch(1)

    assert len(list(resumed)) == 7


def test_the_state_is_of_the_pass_that_is_read_and_not_of_one_begun_meanwhile() -> None:
    """An evaluation of the training's data, say."""
    data = shuffled()
    training = iter(data)
    next(training)
    list(data)
    next(training)

    assert (data.state_dict()["epoch"], data.state_dict()["batches"]) == (0, 2)


def test_the_state_is_a_few_numbers() -> None:
    data = shuffled(seed=3)
    next(iter(data))

    assert data.state_dict() == {
        "epoch": 0,
        "batches": 1,
        "seed": 3,
        "examples": 50,
        "batch_size": 8,
        "shuffle": True,
    }


def test_the_state_of_other_data_is_refused() -> None:
    assert refusal(lambda: shuffled(49).load_state_dict(shuffled(50).state_dict())) == (
        "InMemory has 49 examples, but its state was saved with 50\n"
        "  give the data that the state was saved with, or leave the state out"
    )


def test_how_many_batches_were_given_before_is_known_until_the_pass_begins() -> None:
    first, resumed = shuffled(), shuffled()
    list(islice(first, 3))
    resumed.load_state_dict(first.state_dict())
    before = resumed.batches_done
    list(resumed)

    assert (first.batches_done, before, resumed.batches_done) == (0, 3, 0)


def test_a_copy_counts_for_itself() -> None:
    data = shuffled()
    other = copy.copy(data)
    batches, others = iter(data), iter(other)
    next(batches), next(others), next(others)

    assert (data.state_dict()["batches"], other.state_dict()["batches"]) == (1, 2)


# ---- which examples ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shuffle", [False, True])
def test_the_numbers_of_a_batchs_examples_are_known(shuffle: bool) -> None:
    data = shuffled(10, batch_size=4, shuffle=shuffle)  # whose rows are their numbers

    for batch in data:
        assert data.example_index.equal(batch)


@pytest.mark.parametrize("shuffle", [False, True])
def test_the_numbers_of_the_examples_are_on_the_device_of_the_rows(shuffle: bool) -> None:
    data = InMemory(torch.zeros(4, device="meta"), batch_size=2, shuffle=shuffle)
    next(iter(data))

    assert data.example_index.device.type == "meta"


def test_numbers_of_examples_that_are_changed_in_place_do_not_change_the_data() -> None:
    data = shuffled()
    next(iter(data))
    kept = data.example_index.tolist()
    data.example_index.zero_()

    assert data.example_index.tolist() == kept


def test_before_the_first_batch_no_example_is_known() -> None:
    with pytest.raises(AttributeError, match=r"^InMemory has given no batch, so there is no example_index$"):
        shuffled().example_index  # noqa: B018


# ---- what is refused ---------------------------------------------------------------------------------------------


def test_arrays_of_different_lengths_are_refused() -> None:
    assert refusal(lambda: InMemory(torch.zeros(3), torch.zeros(4), batch_size=2)) == (
        "InMemory was given arrays of different lengths: 3, 4\n  give one row per example in each array"
    )


def test_arrays_on_different_devices_are_refused() -> None:
    assert refusal(lambda: InMemory(torch.zeros(3), torch.zeros(3, device="meta"), batch_size=2)) == (
        'InMemory was given arrays on different devices: cpu, meta\n  move all of them: device="cuda"'
    )


@pytest.mark.parametrize("size", [0, -1, 2.5, True])
def test_a_batch_size_that_is_no_number_of_rows_is_refused(size: Any) -> None:
    assert refusal(lambda: InMemory(torch.zeros(3), batch_size=size)) == (
        f"InMemory's batch_size must be a whole number of at least 1, but is {size}"
    )


def test_a_negative_seed_is_refused() -> None:
    assert refusal(lambda: InMemory(torch.zeros(3), batch_size=1, seed=-1)) == (
        "InMemory's seed must be a whole number of at least 0, but is -1"
    )


def test_no_examples_are_refused() -> None:
    assert refusal(lambda: InMemory(torch.zeros(0, 3), batch_size=2)) == (
        "InMemory was given no examples: the length is 0"
    )


def test_no_full_batch_is_refused_where_only_full_ones_count() -> None:
    assert refusal(lambda: InMemory(torch.zeros(3), batch_size=4, drop_last=True)) == (
        "InMemory has 3 examples, fewer than one batch of 4, and drop_last drops them\n"
        "  give a smaller batch_size, or drop_last=False"
    )


def test_no_array_is_refused() -> None:
    assert refusal(lambda: InMemory(batch_size=2)) == "InMemory was given no array\n  InMemory(x, y, batch_size=64)"


def test_a_number_is_refused() -> None:
    assert refusal(lambda: InMemory(torch.tensor(3.0), batch_size=2)) == (
        "InMemory was given a single number as array 1, which has no rows"
    )


def test_what_is_no_array_is_refused() -> None:
    assert refusal(lambda: InMemory(torch.zeros(3), [1, 2, 3], batch_size=2)) == (
        "InMemory was given a list as array 2\n"
        "  give tensors or numpy arrays, one after the other: InMemory(x, y, batch_size=64)"
    )


def test_an_array_of_texts_is_refused() -> None:
    assert refusal(lambda: InMemory({"name": np.array(["a", "b"])}, batch_size=2)) == (
        "InMemory was given array 'name' of type <U1, which is not numeric\n"
        "  use Rows(data, batch_size=64) for texts and other objects"
    )
