"""The example ``examples/actor_critic.py``."""

from __future__ import annotations

import pytest

from examples import actor_critic as example
from tests.examples.comparison import assert_equal, by_hand, by_manager, lines_of_example, lines_of_twin
from tests.examples.twins import actor_critic as twin


def test_it_trains_and_prints_as_the_loop_by_hand_does(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (example, twin):
        monkeypatch.setattr(module, "EPISODES", 25)

    assert_equal(by_manager(example.manager), by_hand(twin.train))


def test_it_has_no_more_lines_than_the_loop_by_hand() -> None:
    assert lines_of_example("actor_critic") <= lines_of_twin("actor_critic")


def test_the_program_says_how_long_the_pole_stays_upright(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(example, "EPISODES", 2)
    example.main()

    assert capsys.readouterr().out.startswith("pushes before the fall: at first ")
