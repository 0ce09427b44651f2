"""The sums of several processes in a state that is saved."""

from __future__ import annotations

from typing import Any

import pytest

from train_manager.data.shares import Place
from train_manager.distribution.joined import Joined
from train_manager.loop.ranks import ONE_PROCESS, Ranks, state_for_rank, state_of_ranks

STATES = [{"total": 1.0}, {"total": 2.0}]


def add(states: list[Any]) -> dict[str, Any]:
    return {"total": sum((state["total"] for state in states), start=0.0)}


def of_rank(rank: int, number: int, monkeypatch: pytest.MonkeyPatch) -> Ranks:
    """Give the ranks as one of them sees them, where each gathering gives STATES."""
    joined = Joined(Place(rank, number), timeout=1)
    monkeypatch.setattr(joined, "gather", lambda value: STATES)
    return joined


def test_a_saved_sum_is_that_of_all_ranks_beside_the_state_of_each(monkeypatch: pytest.MonkeyPatch) -> None:
    saved = state_of_ranks(of_rank(1, 2, monkeypatch), STATES[1], add)

    assert saved == {"total": 3.0, "ranks": STATES}


def test_a_sum_of_one_process_is_saved_as_it_is() -> None:
    assert state_of_ranks(ONE_PROCESS, STATES[1], add) == STATES[1]


@pytest.mark.parametrize(
    ("number", "expected"),
    [(2, [1.0, 2.0]), (3, [3.0, 0.0, 0.0])],
    ids=["as many get their own", "of another number rank 0 gets the sum"],
)
def test_ranks_resume_from_a_saved_sum(number: int, expected: list[float], monkeypatch: pytest.MonkeyPatch) -> None:
    saved = {"total": 3.0, "ranks": STATES}

    found = [state_for_rank(of_rank(rank, number, monkeypatch), saved, add) for rank in range(number)]

    assert found == [{"total": total} for total in expected]


def test_one_process_resumes_from_the_sum_of_several() -> None:
    assert state_for_rank(ONE_PROCESS, {"total": 3.0, "ranks": STATES}, add) == {"total": 3.0}
    assert state_for_rank(ONE_PROCESS, {"total": 3.0}, add) == {"total": 3.0}
