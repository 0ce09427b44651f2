"""Several sets of data, read in turns: in which order, and when an epoch ends."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from train_manager import Endless, InMemory, InputError, Interleaved
from train_manager.data.batch import FromSource, to_device
from train_manager.data.iteration import is_endless, length_of, walk

A, B = ["a1", "a2", "a3", "a4", "a5", "a6"], ["b1", "b2"]


def batches(data: Interleaved) -> list[Any]:
    return [batch.batch for batch in data]


def refusal(call: Callable[[], object]) -> str:
    with pytest.raises(InputError) as caught:
        call()
    return str(caught.value)


class Unsized:
    def __init__(self, batches: list[Any]) -> None:
        self.batches = batches
        self.resets = 0

    def __iter__(self) -> Iterator[Any]:
        return iter(self.batches)

    def reset(self) -> None:
        self.resets += 1


# ---- in which order ----------------------------------------------------------------------------------------------


def test_each_round_has_so_many_batches_of_each_set() -> None:
    data = Interleaved({"a": A, "b": B}, ratios={"a": 3, "b": 1})

    assert batches(data) == ["a1", "a2", "b1", "a3", "a4", "a5", "b2", "a6"]


def test_without_ratios_the_sets_take_turns() -> None:
    assert batches(Interleaved({"a": A[:2], "b": B})) == ["a1", "b1", "a2", "b2"]


def test_a_batch_says_which_set_it_is_of() -> None:
    assert [batch.datasource_name for batch in Interleaved({"a": A[:2], "b": B})] == ["a", "b", "a", "b"]


def test_a_batch_keeps_its_source_on_its_way_to_a_device() -> None:
    moved = to_device(FromSource("a", torch.zeros(2)), torch.device("meta"))

    assert (moved.datasource_name, moved.batch.device.type) == ("a", "meta")


@given(st.lists(st.integers(1, 7), min_size=1, max_size=4), st.integers(0, 9))
def test_with_a_seed_every_round_still_has_the_ratios(ratios: list[int], seed: int) -> None:
    data = Interleaved(
        {str(name): Endless([name]) for name in range(len(ratios))},
        ratios={str(name): ratio for name, ratio in enumerate(ratios)},
        seed=seed,
    )
    rounds = iter(data)
    for _ in range(3):
        turns = Counter(batch.batch for batch in islice(rounds, sum(ratios)))
        assert turns == dict(enumerate(ratios))


def test_with_a_seed_the_order_is_a_function_of_seed_and_epoch() -> None:
    def data(seed: int) -> Interleaved:
        return Interleaved({"a": A, "b": A}, ratios={"a": 3, "b": 3}, seed=seed)

    in_turn = data(1)
    orders = [[batch.datasource_name for batch in in_turn] for _ in range(3)]
    named = data(1)
    named.set_epoch(2)

    assert [batch.datasource_name for batch in named] == orders[2]
    assert orders[0] != orders[1]
    assert orders[0] != [batch.datasource_name for batch in data(2)]


def test_the_sets_are_shuffled_as_a_function_of_the_epoch() -> None:
    def data() -> Interleaved:
        a, b = (InMemory(torch.arange(size), batch_size=1, shuffle=True) for size in (20, 4))
        return Interleaved({"a": a, "b": b})

    in_turn, named = data(), data()
    first, second = (torch.cat(batches(in_turn)).tolist() for _ in range(2))
    named.set_epoch(1)

    assert torch.cat(batches(named)).tolist() == second
    assert first[0::2] != second[0::2]


def test_a_set_that_begins_anew_within_an_epoch_is_shuffled_anew() -> None:
    small = InMemory(torch.arange(20), batch_size=1, shuffle=True)
    data = Interleaved({"a": list(range(40)), "b": small})
    numbers = [int(batch.batch) for batch in data if batch.datasource_name == "b"]

    assert sorted(numbers[:20]) == sorted(numbers[20:]) == list(range(20))
    assert numbers[:20] != numbers[20:]


# ---- when an epoch ends ------------------------------------------------------------------------------------------


@given(
    st.lists(st.tuples(st.integers(1, 9), st.integers(1, 4), st.booleans()), min_size=1, max_size=4),
    st.none() | st.integers(0, 5),
)
def test_an_epoch_reads_every_set_to_its_end_and_no_round_more(
    sets: list[tuple[int, int, bool]], seed: int | None
) -> None:
    data = Interleaved(
        {
            str(name): list(range(end)) if sized else Unsized(list(range(end)))
            for name, (end, _, sized) in enumerate(sets)
        },
        ratios={str(name): ratio for name, (_, ratio, _) in enumerate(sets)},
        seed=seed,
    )
    given_batches = Counter((batch.datasource_name, batch.batch) for batch in data)
    rounds = max(-(-end // ratio) for end, ratio, _ in sets)

    assert given_batches.total() == rounds * sum(ratio for _, ratio, _ in sets)
    assert set(given_batches) == {(str(name), number) for name, (end, _, _) in enumerate(sets) for number in range(end)}
    assert length_of(data) in (None, given_batches.total())


def test_the_length_is_known_where_those_of_all_sets_are() -> None:
    assert len(Interleaved({"a": A, "b": B}, ratios={"a": 3, "b": 1})) == 8
    assert length_of(Interleaved({"a": A, "b": Unsized(B)})) is None


def test_the_last_batch_is_marked() -> None:
    marks = [last_batch for _, last_batch in walk(Interleaved({"a": A, "b": Unsized(B)}), "data")]

    assert marks == [False] * 11 + [True]


def test_an_endless_set_does_not_prolong_an_epoch() -> None:
    data = Interleaved({"a": A[:2], "b": Endless(B)}, ratios={"a": 1, "b": 2})

    assert batches(data) == ["b1", "a1", "b2", "b1", "a2", "b2"]
    assert (is_endless(data), len(data)) == (False, 6)


def test_where_no_set_has_an_end_there_is_none() -> None:
    data = Interleaved({"a": Endless(A), "b": Endless(B)})

    assert (is_endless(data), length_of(data)) == (True, None)
    assert batches_of(islice(data, 6)) == ["a1", "b1", "a2", "b2", "a3", "b1"]


def batches_of(given_batches: Iterator[FromSource]) -> list[Any]:
    return [batch.batch for batch in given_batches]


def test_a_reset_reaches_all_sets() -> None:
    a, b = Unsized(A), Unsized(B)
    Interleaved({"a": a, "b": b}).reset()

    assert (a.resets, b.resets) == (1, 1)


# ---- what is refused ---------------------------------------------------------------------------------------------


def test_no_set_is_refused() -> None:
    assert refusal(lambda: Interleaved({})) == (
        'Interleaved was given no set of data\n  give sets by name: Interleaved({"a": data})'
    )


def test_a_set_without_a_ratio_is_refused() -> None:
    assert refusal(lambda: Interleaved({"a": A, "b": B}, ratios={"a": 1})) == (
        "Interleaved has no ratio for 'b'\n  the sets are 'a', 'b'; the ratios 'a'"
    )


def test_a_ratio_without_a_set_is_refused() -> None:
    assert refusal(lambda: Interleaved({"a": A}, ratios={"a": 1, "c": 1})) == (
        "Interleaved has no set for 'c'\n  the sets are 'a'; the ratios 'a', 'c'"
    )


@pytest.mark.parametrize("ratio", [0, 0.5, -1])
def test_a_ratio_that_is_no_count_is_refused(ratio: Any) -> None:
    assert refusal(lambda: Interleaved({"a": A}, ratios={"a": ratio})) == (
        f"Interleaved's ratio of 'a' must be a whole number of at least 1, but is {ratio}"
    )


def test_a_set_that_is_empty_is_refused_when_its_turn_comes() -> None:
    text = refusal(lambda: list(Interleaved({"a": A, "b": []})))

    assert text.startswith("set 'b' of Interleaved gave no batch in pass 1 of an epoch\n")


def test_a_set_that_can_be_read_once_and_ends_early_is_refused() -> None:
    text = refusal(lambda: list(Interleaved({"a": A, "b": iter(B)})))

    assert text == (
        "set 'b' of Interleaved gave no batch in pass 2 of an epoch\n"
        "  a list_iterator can be read once; give a list, a DataLoader, or a class with __iter__"
    )
