"""The example ``examples/meta_learning.py``."""

from __future__ import annotations

import pytest

from examples import meta_learning as example
from tests.examples.comparison import assert_equal, by_hand, by_manager, lines_of_example, lines_of_twin
from tests.examples.twins import meta_learning as twin


def test_it_trains_and_prints_as_the_loop_by_hand_does(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (example, twin):
        monkeypatch.setattr(module, "STEPS", 20)
        monkeypatch.setattr(module, "LOG_EVERY", 10)

    assert_equal(by_manager(example.manager), by_hand(twin.train))


def test_it_has_no_more_lines_than_the_loop_by_hand() -> None:
    assert lines_of_example("meta_learning") <= lines_of_twin("meta_learning")


def test_the_program_says_the_error_after_one_step(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(example, "STEPS", 2)
    example.main()

    assert capsys.readouterr().out.splitlines()[-1].startswith("error after one step ")
