"""The example ``examples/meta_learning.py``."""

from __future__ import annotations

import pytest

from examples import meta_learning as example
from tests.examples.comparison import lines_of_example, lines_of_twin


def test_it_has_no_more_lines_than_the_loop_by_hand() -> None:
    assert lines_of_example("meta_learning") <= lines_of_twin("meta_learning")


def test_the_program_says_the_error_after_one_step(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(example, "STEPS", 2)
    example.main()

    assert capsys.readouterr().out.splitlines()[-1].startswith("error after one step ")
