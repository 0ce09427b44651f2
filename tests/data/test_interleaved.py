"""Several sets of data, read in turns: in which order, and when an epoch ends."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import islice
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tests.support.training import refusal
from train_manager import Endless, Extension, InMemory, Interleaved
from train_manager.data.batch import FromSource, to_device
from train_manager.data.readable import is_endless, length_of
from train_manager.testing import tiny_manager

A, B = ["a1", "a2", "a3", "a4", "a5", "a6"], ["b1", "b2"]


def batches(data: Interleaved) -> list[Any]:
    return [batch.batch for batch in data]


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


def test_a_set_that_begins_anew_within_an_epoch_is_shuffled_anew() -> None:
    small = InMemory(torch.arange(20), batch_size=1, shuffle=True)
    data = Interleaved({"a": list(range(40)), "b": small})
    numbers = [int(batch.batch) for batch in data if batch.datasource_name == "b"]

    assert sorted(numbers[:20]) == sorted(numbers[20:]) == list(range(20))
    assert numbers[:20] != numbers[20:]


# ---- when an epoch ends ------------------------------------------------------------------------------------------


SETS = st.lists(st.tuples(st.integers(1, 9), st.integers(1, 4), st.booleans()), min_size=1, max_size=4)
"""Sets as their length, their ratio, and whether the length is known."""


def interleaved(sets: list[tuple[int, int, bool]], seed: int | None) -> Interleaved:
    return Interleaved(
        {
            str(name): list(range(end)) if sized else Unsized(list(range(end)))
            for name, (end, _, sized) in enumerate(sets)
        },
        ratios={str(name): ratio for name, (_, ratio, _) in enumerate(sets)},
        seed=seed,
    )


@given(SETS, st.none() | st.integers(0, 5))
def test_an_epoch_reads_every_set_to_its_end_and_no_round_more(
    sets: list[tuple[int, int, bool]], seed: int | None
) -> None:
    data = interleaved([(end, ratio, True) for end, ratio, _ in sets], seed)
    given_batches = Counter((batch.datasource_name, batch.batch) for batch in data)
    rounds = max(-(-end // ratio) for end, ratio, _ in sets)

    assert given_batches.total() == rounds * sum(ratio for _, ratio, _ in sets)
    assert set(given_batches) == {(str(name), number) for name, (end, _, _) in enumerate(sets) for number in range(end)}
    assert length_of(data) == given_batches.total()


@given(SETS, st.none() | st.integers(0, 5))
def test_unknown_lengths_change_only_the_end_of_an_epoch(sets: list[tuple[int, int, bool]], seed: int | None) -> None:
    known = list(interleaved([(end, ratio, True) for end, ratio, _ in sets], seed))
    mixed = list(interleaved(sets, seed))
    shorter, longer = sorted([known, mixed], key=len)

    assert longer[: len(shorter)] == shorter
    assert len(longer) - len(shorter) < sum(ratio for _, ratio, _ in sets)
    assert {(batch.datasource_name, batch.batch) for batch in mixed} == {
        (batch.datasource_name, batch.batch) for batch in known
    }


def test_an_epoch_ends_where_the_last_set_of_unknown_length_is_found_at_its_end() -> None:
    assert batches(Interleaved({"a": A[:2], "b": Unsized(B)})) == ["a1", "b1", "a2", "b2", "a1"]


def test_a_set_of_unknown_length_that_ends_early_starts_again() -> None:
    assert batches(Interleaved({"a": A[:4], "b": Unsized(B)})) == ["a1", "b1", "a2", "b2", "a3", "b1", "a4", "b2"]


def test_one_set_that_can_be_read_once_is_read_to_its_end() -> None:
    assert batches(Interleaved({"a": iter(A)})) == A


def test_the_sets_may_be_interleaved_themselves() -> None:
    inner = Interleaved({"b": B, "c": ["c1", "c2"]})
    outer = list(Interleaved({"a": A[:4], "inner": inner}))

    assert [batch.batch for batch in outer] == ["a1", "b1", "a2", "c1", "a3", "b2", "a4", "c2"]
    assert {batch.datasource_name for batch in outer} == {"a", "inner"}


def test_the_length_is_known_where_those_of_all_sets_are() -> None:
    assert len(Interleaved({"a": A, "b": B}, ratios={"a": 3, "b": 1})) == 8
    assert length_of(Interleaved({"a": A, "b": Unsized(B)})) is None


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


# ---- chosen ------------------------------------------------------------------------------------------------------


def test_a_function_chooses_the_set_of_each_batch_as_it_is_asked_for() -> None:
    chosen = "a"
    data = iter(Interleaved({"a": A, "b": B}, choose=lambda: chosen))
    first = next(data)
    chosen = "b"
    second, third = next(data), next(data)

    assert [first, second, third] == [FromSource("a", "a1"), FromSource("b", "b1"), FromSource("b", "b2")]


def test_a_chosen_set_starts_again_at_its_end_so_that_there_is_no_end() -> None:
    data = Interleaved({"b": Unsized(B)}, choose=lambda: "b")

    assert batches_of(islice(data, 5)) == ["b1", "b2", "b1", "b2", "b1"]
    assert (is_endless(data), length_of(data)) == (True, None)


def test_an_extension_chooses_what_is_trained_on_next() -> None:
    class Curriculum(Extension):
        level = "easy"

        def post_train_step_batch(self, step_num: int) -> None:
            self.level = "easy" if step_num < 3 else "hard"

    curriculum, names = Curriculum(), []
    easy, hard = ([(torch.zeros(4, 2), torch.zeros(4).long())] for _ in range(2))
    data = Interleaved({"easy": easy, "hard": hard}, choose=lambda: curriculum.level)
    tm = tiny_manager(curriculum, train_data=data, steps_per_epoch=5, epochs=1)
    tm.add_extension(post_train_step_batch=lambda train_manager: names.append(train_manager.datasource_name))
    tm.train()

    assert names == ["easy"] * 3 + ["hard"] * 2


def test_a_choice_that_is_no_set_is_refused() -> None:
    assert refusal(lambda: next(iter(Interleaved({"a": A, "b": B}, choose=lambda: "c")))) == (
        "Interleaved's choose returned 'c', which is the name of no set\n  the sets are 'a', 'b'"
    )


@pytest.mark.parametrize("beside", [{"ratios": {"a": 1}}, {"seed": 1}])
def test_a_choice_beside_ratios_or_a_seed_is_refused(beside: dict[str, Any]) -> None:
    assert refusal(lambda: Interleaved({"a": A}, choose=lambda: "a", **beside)) == (
        "Interleaved was given choose, which replaces ratios and seed\n  leave out choose, or the other two"
    )


# ---- which examples ----------------------------------------------------------------------------------------------


def test_the_example_index_is_that_of_the_set_whose_turn_it_is() -> None:
    data = Interleaved({"a": InMemory(torch.zeros(4), batch_size=2), "b": InMemory(torch.zeros(3), batch_size=3)})

    assert [data.example_index.tolist() for _ in data] == [[0, 1], [0, 1, 2], [2, 3], [0, 1, 2]]


def test_there_is_no_example_index_where_the_set_numbers_nothing() -> None:
    data = Interleaved({"a": A})

    assert not hasattr(data, "example_index")
    next(iter(data))
    assert not hasattr(data, "example_index")


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
