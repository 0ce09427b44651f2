"""The example ``examples/language_model.py``."""

from __future__ import annotations

import pytest

from examples import language_model as example
from tests.examples.comparison import lines_of_example, lines_of_twin


def test_it_has_no_more_lines_than_the_loop_by_hand() -> None:
    assert lines_of_example("language_model") <= lines_of_twin("language_model")


def test_the_program_says_how_well_it_knows_text_that_is_new(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(example, "STEPS", 16)
    monkeypatch.setattr(example, "EVAL_EVERY", 16)
    example.main()

    assert capsys.readouterr().out.splitlines()[-1].endswith("after 4 updates")
