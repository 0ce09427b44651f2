"""The page ``docs/how-to/published-trainings.md``: its table has each program with a twin, and both line counts."""

from __future__ import annotations

import re

import pytest

from tests.examples.comparison import ROOT, lines_of_example, lines_of_twin

PAGE = (ROOT / "docs" / "how-to" / "published-trainings.md").read_text()
ROWS = {
    name: (int(lines), int(by_hand)) for name, lines, by_hand in re.findall(r"`(\w+)\.py`.* (\d+) \| (\d+) \|", PAGE)
}


def test_the_table_has_each_program_with_a_twin() -> None:
    twins = {path.stem for path in (ROOT / "tests" / "examples" / "twins").glob("*.py")}

    assert set(ROWS) == twins - {"gan_with_recipes"}


@pytest.mark.parametrize("name", ROWS)
def test_a_program_has_no_more_lines_than_the_loop_by_hand(name: str) -> None:
    plays = name in ("dqn", "ppo")  # the loop is that of the game: a fifth more

    assert lines_of_example(name) <= lines_of_twin(name) * (1.2 if plays else 1)


@pytest.mark.parametrize("name", ROWS)
def test_the_table_has_the_numbers_of_lines(name: str) -> None:
    assert ROWS[name] == (lines_of_example(name), lines_of_twin(name))
