"""What is said about 57 wrong arguments, and that its advice helps."""

from __future__ import annotations

import pytest

from tests.advice.arguments import AS_MADE, AS_OPENED, CASES, Case, rows, said
from train_manager import TrainManager

EACH = pytest.mark.parametrize("case", CASES, ids=[case.written for case in CASES])


@EACH
def test_the_advice_names_what_helps(case: Case) -> None:
    _, advice, _ = said(case)

    assert case.cure in advice


@EACH
def test_the_advice_helps(case: Case) -> None:
    made = case.follows()

    if isinstance(made, TrainManager):
        made.train()
        assert made.step_num > 0


def test_there_are_57_rows_of_different_mistakes() -> None:
    written = [written for written, _, _ in rows()]

    assert len(written) == len(set(written)) == 57


def test_most_is_said_before_the_first_step() -> None:
    early = [when for _, _, when in rows() if when in (AS_MADE, AS_OPENED)]

    assert len(early) == 49
