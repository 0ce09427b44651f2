"""Several sets of data at once: what is in a batch, and when an epoch ends."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from train_manager import Endless, InMemory, InputError, Interleaved, Together
from train_manager.data.readable import is_endless, length_of
from train_manager.testing import tiny_manager

SETS = st.lists(st.tuples(st.integers(1, 7), st.booleans()), min_size=1, max_size=4)
"""Sets as their length, and whether it is known."""


class Unsized:
    def __init__(self, end: int) -> None:
        self.end, self.resets = end, 0

    def __iter__(self) -> Iterator[int]:
        yield from range(self.end)

    def reset(self) -> None:
        self.resets += 1


def sets_of(sets: list[tuple[int, bool]]) -> dict[str, Any]:
    return {str(name): range(end) if sized else Unsized(end) for name, (end, sized) in enumerate(sets)}


# ---- when an epoch ends ------------------------------------------------------------------------------------------


@given(SETS)
def test_by_default_an_epoch_is_as_long_as_the_longest_set_and_shorter_ones_start_again(
    sets: list[tuple[int, bool]],
) -> None:
    data = Together(sets_of(sets))
    longest = max(end for end, _ in sets)

    assert list(data) == [{str(name): number % end for name, (end, _) in enumerate(sets)} for number in range(longest)]
    assert length_of(data) == (longest if all(sized for _, sized in sets) else None)


@given(SETS)
def test_an_epoch_may_be_as_long_as_the_shortest_set(sets: list[tuple[int, bool]]) -> None:
    data = Together(sets_of(sets), until="shortest")
    shortest = min(end for end, _ in sets)

    assert list(data) == [dict.fromkeys(map(str, range(len(sets))), number) for number in range(shortest)]
    assert length_of(data) == (shortest if all(sized for _, sized in sets) else None)


@pytest.mark.parametrize("until", ["longest", "shortest"])
def test_an_endless_set_does_not_determine_the_end(until: Any) -> None:
    data = Together({"a": Endless([7]), "b": [1, 2]}, until=until)

    assert list(data) == [{"a": 7, "b": 1}, {"a": 7, "b": 2}]
    assert (is_endless(data), len(data)) == (False, 2)


def test_where_no_set_has_an_end_there_is_none() -> None:
    data = Together({"a": Endless([1]), "b": Endless([2, 3])})

    assert list(islice(data, 3)) == [{"a": 1, "b": 2}, {"a": 1, "b": 3}, {"a": 1, "b": 2}]
    assert (is_endless(data), length_of(data)) == (True, None)


# ---- what is in a batch ------------------------------------------------------------------------------------------


def test_a_set_in_turns_gives_its_batches_without_their_sources() -> None:
    data = Together({"a": [1, 2], "b": Interleaved({"x": ["x1"], "y": ["y1"]})})

    assert list(data) == [{"a": 1, "b": "x1"}, {"a": 2, "b": "y1"}]


def test_the_example_index_has_the_sets_that_number_their_examples() -> None:
    data = Together({"a": InMemory(torch.zeros(4), batch_size=2), "b": range(2), "c": Endless([1])})
    for _ in data:
        pass

    assert {name: index.tolist() for name, index in data.example_index.items()} == {"a": [2, 3]}


def test_a_reset_reaches_all_sets() -> None:
    a, b = Unsized(1), Unsized(1)
    Together({"a": a, "b": b}).reset()

    assert (a.resets, b.resets) == (1, 1)


# ---- what is refused ---------------------------------------------------------------------------------------------


def test_no_set_is_refused() -> None:
    with pytest.raises(InputError) as caught:
        Together({})

    assert str(caught.value) == 'Together was given no set of data\n  give sets by name: Together({"a": data})'


def test_another_word_for_the_end_is_refused() -> None:
    with pytest.raises(InputError) as caught:
        Together({"a": [1]}, until="ever")  # type: ignore[arg-type]

    assert str(caught.value) == "Together's until must be 'longest' or 'shortest', but is 'ever'"


def test_an_empty_set_is_refused() -> None:
    with pytest.raises(InputError, match=r"^set 'b' of Together gave no batch in pass 1 of an epoch\n"):
        list(Together({"a": [1], "b": []}))


# ---- in a training -----------------------------------------------------------------------------------------------


class Both(nn.Linear):
    """Takes a batch of each set."""

    def forward(self, sets: dict[str, Any]) -> tuple[Tensor, Tensor]:  # type: ignore[override]
        return super().forward(sets["labeled"][0]), super().forward(sets["unlabeled"])


def test_a_model_is_given_all_sets_and_the_first_one_counts_the_examples() -> None:
    labeled = InMemory(torch.rand(12, 2), torch.rand(12, 1), batch_size=4)
    unlabeled = InMemory(torch.rand(50, 2), batch_size=10)

    def loss(batch: dict[str, Any], prediction: tuple[Tensor, Tensor]) -> Tensor:
        return nn.functional.mse_loss(prediction[0], batch["labeled"][1]) + prediction[1].square().mean()

    sizes: list[int] = []
    tm = tiny_manager(
        model=Both(2, 1), loss=loss, train_data=Together({"labeled": labeled, "unlabeled": unlabeled}), eval_data={}
    )
    tm.add_extension(post_train_step_batch=lambda true_batch_size: sizes.append(true_batch_size))
    tm.train_steps(5)

    assert sizes == [4] * 5
