"""The example ``examples/vae.py``: a loss of several outputs, pictures after each epoch, metrics per image."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("sklearn")

from examples import vae as example
from tests.examples.comparison import (
    assert_equal,
    by_hand,
    by_manager,
    fork_evaluation,
    lines_of_example,
    lines_of_twin,
)
from tests.examples.twins import vae as twin


def test_it_trains_prints_and_draws_as_the_loop_by_hand_does(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fork_evaluation(twin, monkeypatch)
    (tmp_path / "one").mkdir()
    (tmp_path / "other").mkdir()
    one = by_manager(lambda: example.manager(tmp_path / "one"))
    other = by_hand(lambda record: twin.train(record, tmp_path / "other"))
    pictures = [path.name for path in sorted((tmp_path / "other").iterdir())]

    assert_equal(one, other)
    assert len(pictures) == example.EPOCHS
    assert all((tmp_path / "one" / name).read_bytes() == (tmp_path / "other" / name).read_bytes() for name in pictures)


def test_it_has_no_more_lines_than_the_loop_by_hand() -> None:
    assert lines_of_example("vae") <= lines_of_twin("vae")


def test_the_program_says_the_loss_per_image_and_the_files(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(example, "EPOCHS", 1)
    example.main()

    assert capsys.readouterr().out.splitlines()[-1] == "epoch_1.pgm"
