"""The example ``examples/dqn.py``: the loop is that of the game, and trains on a batch now and then."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from examples import dqn as example
from tests.examples.comparison import assert_equal, by_hand, by_manager, lines_of_example, lines_of_twin
from tests.examples.twins import dqn as twin


@pytest.fixture(autouse=True, scope="module")
def shorter() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        for name, value in {"STEPS": 600, "LEARNING_STARTS": 100, "LOG_EVERY": 50, "GAMES": 20}.items():
            patch.setattr(example, name, value)
            patch.setattr(twin, name, value)
        yield


def test_it_trains_and_prints_as_the_loop_by_hand_does() -> None:
    assert_equal(by_manager(example.manager, train=example.play), by_hand(twin.train))


def test_its_lines_are_at_most_a_fifth_more_than_those_of_the_loop_by_hand() -> None:
    assert lines_of_example("dqn") <= 1.2 * lines_of_twin("dqn")


def test_the_program_says_how_many_balls_it_catches(capsys: pytest.CaptureFixture[str]) -> None:
    example.main()

    assert capsys.readouterr().out.splitlines()[-1].endswith(" of 100 balls caught")
