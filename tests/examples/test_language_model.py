"""The example ``examples/language_model.py``."""

from __future__ import annotations

import pytest

from examples import language_model as example
from tests.examples.comparison import assert_equal, by_hand, by_manager, lines_of_example, lines_of_twin
from tests.examples.twins import language_model as twin


def test_it_trains_and_prints_as_the_loop_by_hand_does(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (example, twin):
        monkeypatch.setattr(module, "STEPS", 40)
        monkeypatch.setattr(module, "EVAL_EVERY", 20)

    assert_equal(by_manager(example.manager), by_hand(twin.train))


def test_it_has_no_more_lines_than_the_loop_by_hand() -> None:
    assert lines_of_example("language_model") <= lines_of_twin("language_model")


def test_the_program_says_how_well_it_knows_text_that_is_new(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(example, "STEPS", 16)
    monkeypatch.setattr(example, "EVAL_EVERY", 16)
    example.main()

    assert capsys.readouterr().out.splitlines()[-1].endswith("after 4 updates")
