"""Several sets by name: stopped and resumed, and put back after an evaluation."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tests.support.resuming import differences
from train_manager import Endless, InMemory, InputError, Interleaved, Together
from train_manager.data.batch import FromSource
from train_manager.data.reader import one_pass

Sets = Interleaved | Together


def shuffled(examples: int) -> InMemory:
    return InMemory(torch.arange(examples), batch_size=1, shuffle=True)


class Unsized:
    def __iter__(self) -> Iterator[int]:
        yield from range(3)


def sets() -> dict[str, Any]:
    """A set of each kind: with and without a state, a length, an end."""
    return {"rows": shuffled(5), "few": shuffled(2), "list": [7, 8], "unsized": Unsized(), "endless": Endless([1])}


MAKERS: list[Callable[[], Sets]] = [
    lambda: Interleaved(sets()),
    lambda: Interleaved(sets(), ratios={"rows": 1, "few": 3, "list": 1, "unsized": 2, "endless": 1}, seed=3),
    lambda: Interleaved({"a": shuffled(4), "nested": Interleaved({"b": shuffled(3), "c": Endless(shuffled(2))})}),
    lambda: Interleaved({"a": shuffled(4), "endless": Endless(shuffled(3))}, ratios={"a": 1, "endless": 2}),
    lambda: Together({"a": shuffled(5), "b": shuffled(2), "endless": Endless(shuffled(3))}),
    lambda: Together(sets(), until="shortest"),
]


def plain(batch: Any) -> Any:
    """Numbers that can be compared."""
    if isinstance(batch, FromSource):
        return batch.datasource_name, int(batch.batch)
    return {name: int(part) for name, part in batch.items()}


def epochs(data: Sets, count: int) -> list[Any]:
    return [plain(batch) for _ in range(count) for batch in data]


# ---- stopped and resumed -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("make", MAKERS)
@given(stops=st.lists(st.integers(0, 20), max_size=3))
def test_a_pass_continues_where_its_state_was_taken(make: Callable[[], Sets], stops: list[int]) -> None:
    whole, data = epochs(make(), 3), make()
    seen: list[Any] = []
    for stop in stops:
        stream = (batch for _ in range(3) for batch in data)
        seen += [plain(batch) for batch in islice(stream, stop)]
        state, data = copy.deepcopy(data.state_dict()), make()
        data.load_state_dict(state)
    seen += epochs(data, 3)

    assert seen[: len(whole)] == whole


@pytest.mark.parametrize("make", MAKERS)
def test_a_state_may_be_saved_again_before_it_is_used(make: Callable[[], Sets]) -> None:
    first, resumed = make(), make()
    next(iter(first))
    state = copy.deepcopy(first.state_dict())
    list(islice(resumed, 2))
    resumed.load_state_dict(state)

    assert resumed.state_dict() == state


def test_after_an_epoch_the_state_is_the_start_of_the_next_one() -> None:
    data = Together({"a": Unsized()})
    list(data)

    assert data.state_dict() == {"epoch": 1, "given": 0, "sets": {}}


def test_the_state_is_of_the_pass_that_is_read_and_not_of_one_begun_meanwhile() -> None:
    data = Together({"a": [1, 2, 3]})
    training = iter(data)
    next(training)
    list(islice(data, 2))
    next(training)

    assert (data.state_dict()["epoch"], data.state_dict()["given"]) == (0, 2)


def test_an_endless_set_without_a_state_starts_anew() -> None:
    class Stream:
        endless = True

        def __iter__(self) -> Iterator[int]:
            yield from range(7, 1000)

    first, resumed = (Together({"a": [1, 2, 3], "b": Stream()}) for _ in range(2))
    list(islice(first, 2))
    resumed.load_state_dict(first.state_dict())

    assert list(resumed) == [{"a": 3, "b": 7}]


def test_the_batches_that_were_given_before_are_known() -> None:
    first, resumed = (Interleaved({"a": shuffled(4), "b": [1, 2]}) for _ in range(2))
    batches = iter(first)
    for _ in range(3):
        next(batches)
    resumed.load_state_dict(first.state_dict())

    assert (first.batches_done, resumed.batches_done) == (0, 3)
    assert len(list(resumed)) == len(resumed) - 3
    assert resumed.batches_done == 0


def test_naming_the_epoch_that_was_loaded_keeps_its_place_and_another_begins() -> None:
    data = Together({"a": shuffled(4)})
    next(iter(data))
    state = data.state_dict()
    lengths = []
    for epoch in (0, 1):
        data.load_state_dict(state)
        data.set_epoch(epoch)
        lengths.append(len(list(data)))

    assert lengths == [3, 4]


def test_the_state_of_other_sets_is_refused() -> None:
    data = Together({"a": [1, 2]})
    next(iter(data))
    with pytest.raises(InputError) as caught:
        Together({"b": [1]}).load_state_dict(data.state_dict())

    assert str(caught.value) == (
        "Together has the sets 'b', but its state was saved with 'a'\n"
        "  give the data that the state was saved with, or leave the state out"
    )


def test_a_copy_begins_the_epoch_anew() -> None:
    data = Together({"a": Unsized()})
    training = iter(data)
    next(training)

    assert list(copy.deepcopy(data)) == [{"a": 0}, {"a": 1}, {"a": 2}]


# ---- as found ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("make", MAKERS)
@pytest.mark.parametrize("given_batches", [0, 2, 4, 9])
def test_a_pass_between_two_batches_moves_nothing(make: Callable[[], Sets], given_batches: int) -> None:
    expected, data = epochs(make(), 3), make()
    stream = (plain(batch) for _ in range(3) for batch in data)
    seen = list(islice(stream, given_batches))
    state = copy.deepcopy(data.state_dict())
    with one_pass(data) as batches:
        for _ in batches:
            pass

    assert differences(data.state_dict(), state) == []
    assert seen + list(stream) == expected


def test_a_pass_over_loaded_data_begins_at_the_start_and_the_training_where_it_was() -> None:
    first, resumed = (Interleaved({"a": shuffled(4), "b": [1, 2]}) for _ in range(2))
    next(iter(first))
    resumed.load_state_dict(first.state_dict())
    with one_pass(resumed) as batches:
        evaluated = len(list(batches))

    assert (evaluated, len(list(resumed))) == (8, 7)


@pytest.mark.parametrize("several", [Interleaved, Together])
@pytest.mark.parametrize("given_batches", [1, 6])
def test_the_sets_are_closed_with_the_pass(several: Any, given_batches: int) -> None:
    class Closes(Unsized):
        closed = 0

        def __len__(self) -> int:
            return 3

        def __iter__(self) -> Iterator[int]:
            try:
                yield from range(3)
            finally:
                self.closed += 1

    data = Closes()
    sets = several({"a": data})
    for _ in islice(sets, given_batches):
        pass

    assert data.closed == 1


# ---- which epoch -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("make", MAKERS)
def test_the_order_is_a_function_of_the_epoch(make: Callable[[], Sets]) -> None:
    in_turn, named = make(), make()
    for _ in range(2):
        list(in_turn)
    named.set_epoch(2)

    assert epochs(named, 1) == epochs(in_turn, 1)


def test_a_pass_within_an_epoch_has_another_order_than_the_next_epochs() -> None:
    data = Together({"a": range(40), "b": shuffled(20)})
    orders = [tuple(int(batch["b"]) for batch in data) for _ in range(2)]

    assert len({order[start : start + 20] for order in orders for start in (0, 20)}) == 4


def test_a_set_that_starts_again_is_reset_first() -> None:
    class Resettable(Unsized):
        resets = 0

        def reset(self) -> None:
            self.resets += 1

    data = Resettable()
    list(Together({"a": range(7), "b": data}))

    assert data.resets == 2
