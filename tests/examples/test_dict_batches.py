"""The example ``examples/dict_batches.py``: batches that are dicts, and a model whose output has the loss."""

from __future__ import annotations

import pytest

pytest.importorskip("transformers")

from examples import dict_batches as example
from tests.examples.comparison import lines_of_example, lines_of_twin


def test_it_has_no_more_lines_than_the_loop_by_hand() -> None:
    assert lines_of_example("dict_batches") <= lines_of_twin("dict_batches")


def test_the_program_says_how_often_it_is_right(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(example, "EPOCHS", 1)
    example.main()

    assert capsys.readouterr().out.splitlines()[-1].startswith("test accuracy ")
