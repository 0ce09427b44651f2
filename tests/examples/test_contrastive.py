"""The example ``examples/contrastive.py``: pairs of images, which the forward takes as two arguments."""

from __future__ import annotations

import pytest

pytest.importorskip("sklearn")

from examples import contrastive as example
from tests.examples.comparison import lines_of_example, lines_of_twin


def test_it_has_no_more_lines_than_the_loop_by_hand() -> None:
    assert lines_of_example("contrastive") <= lines_of_twin("contrastive")


def test_the_program_says_how_often_it_is_right(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(example, "EPOCHS", 1)
    example.main()

    assert capsys.readouterr().out.splitlines()[-1].startswith("test accuracy ")
