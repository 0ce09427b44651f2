"""The example ``examples/mnist.py``: digits, a rate that falls by epoch, test accuracy, a dry run, saved weights."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

pytest.importorskip("sklearn")

from examples import mnist as example


def test_a_dry_run_trains_on_one_batch(capsys: pytest.CaptureFixture[str]) -> None:
    example.main(["--dry-run"])

    assert capsys.readouterr().out.splitlines()[-1].endswith("% after 1 batches")


def test_the_weights_are_saved(tmp_path: Path) -> None:
    example.main(["--dry-run", "--save", str(tmp_path / "digits.pt")])

    example.network().load_state_dict(torch.load(tmp_path / "digits.pt", weights_only=True))
