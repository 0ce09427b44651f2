"""The example ``examples/actor_critic.py``."""

from __future__ import annotations

import pytest

from examples import actor_critic as example
from tests.examples.comparison import lines_of_example, lines_of_twin


def test_it_has_no_more_lines_than_the_loop_by_hand() -> None:
    assert lines_of_example("actor_critic") <= lines_of_twin("actor_critic")


def test_the_program_says_how_long_the_pole_stays_upright(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(example, "EPISODES", 2)
    example.main()

    assert capsys.readouterr().out.startswith("pushes before the fall: at first ")
