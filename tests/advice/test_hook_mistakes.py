"""Mistakes in hooks are found before the first step."""

from __future__ import annotations

import pytest

from tests.advice.hook_mistakes import AT_CHECK, MISTAKES, WHEN_ADDED, Mistake, found


@pytest.mark.parametrize("mistake", MISTAKES, ids=[mistake.title for mistake in MISTAKES])
def test_a_mistake_is_found_before_the_first_step(mistake: Mistake) -> None:
    assert found(mistake).when in (WHEN_ADDED, AT_CHECK)


def test_there_are_twelve() -> None:
    assert len({mistake.title for mistake in MISTAKES}) == 12
