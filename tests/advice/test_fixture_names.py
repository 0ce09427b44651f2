"""Wrong names of fixtures and stages: each is refused before the first step, with a cure that works."""

from __future__ import annotations

import pytest

from tests.advice.fixture_names import CASES, STAGES, Case, find_advice, hook
from train_manager.testing import tiny_manager


def written(case: Case) -> str:
    return f"{case.written} {case.cure}"


def test_there_are_31_wrong_fixtures_and_10_wrong_stages() -> None:
    assert len({case.written for case in CASES}) >= 31
    assert len({case.written for case in STAGES}) >= 10


@pytest.mark.parametrize("case", [*CASES, *STAGES], ids=written)
def test_a_wrong_name_is_refused_with_the_cure(case: Case) -> None:
    assert case.cure in find_advice(case)[0]


@pytest.mark.parametrize("case", [*CASES, *STAGES], ids=written)
def test_the_hook_that_follows_the_cure_runs(case: Case) -> None:
    follows = hook(*case.works)
    added = [case.needs()] if case.needs else []
    tm = tiny_manager(*added, follows)
    tm.train()
    tm.predict(tm.eval_data["valid"])

    assert follows.seen  # type: ignore[attr-defined]
