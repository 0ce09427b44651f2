"""The example ``examples/wgan_gp.py``: gradients of gradients, and a generator that is trained on every fifth batch."""

from __future__ import annotations

import pytest

from examples import wgan_gp as example
from tests.examples.comparison import lines_of_example, lines_of_twin


def test_it_has_no_more_lines_than_the_loop_by_hand() -> None:
    assert lines_of_example("wgan_gp") <= lines_of_twin("wgan_gp")


def test_the_program_says_how_far_from_the_middle_its_points_are(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(example, "EPOCHS", 1)
    example.main()

    assert capsys.readouterr().out.splitlines()[-1].startswith("radius ")
