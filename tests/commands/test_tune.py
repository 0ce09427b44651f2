from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from train_manager import cli

TRAINING = """
import sys
from train_manager.testing import tiny_manager

tm = tiny_manager(epochs=int(sys.argv[1]))
tm.train()
print("trained")
"""


@pytest.fixture(autouse=True)
def interpreter_as_before(monkeypatch: pytest.MonkeyPatch) -> None:
    """Put back what a script sees as its own, and keep the trials short."""
    monkeypatch.setattr(sys, "argv", [*sys.argv])
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setattr("train_manager.trials.tune.ROUNDS", 1)
    monkeypatch.setattr("train_manager.extensions.Compile", None, raising=False)  # it compiles for seconds


def test_a_script_with_its_arguments_is_tuned_in_place_of_its_training(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "train.py").write_text(TRAINING)
    code = cli.main(["tune", str(tmp_path / "train.py"), "--steps", "1", "--quiet", "--", "2"])
    out, err = capsys.readouterr()

    assert (code, err) == (0, "")
    assert re.search("^as it is +1.00 ", out, re.MULTILINE)
    assert "trained" not in out


def test_a_script_that_exits_before_it_trains_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "train.py").write_text("import sys; sys.exit(2)")

    assert cli.main(["tune", str(tmp_path / "train.py"), "--json"]) == 2
    assert "train.py has called sys.exit(2) before its first training" in capsys.readouterr().out


def test_a_script_that_does_not_train_cannot_be_tuned(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "train.py").write_text("print('nothing')")

    assert cli.main(["tune", str(tmp_path / "train.py")]) == 2
    assert capsys.readouterr().err.splitlines() == [
        "train-manager: train.py has ended, and no TrainManager in it has trained",
        "  give a script that calls tm.train()",
    ]


def test_a_trick_that_is_left_out_is_not_tried(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "train.py").write_text(TRAINING)
    options = ["--steps", "1", "--quiet", "--without", "bf16", "--without", "fused"]

    assert cli.main(["tune", str(tmp_path / "train.py"), *options, "--", "2"]) == 0
    assert not re.search("^(bf16|fused) ", capsys.readouterr().out, re.MULTILINE)


def test_an_unknown_trick_is_refused_before_the_script_runs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "train.py").write_text("raise OSError")

    assert cli.main(["tune", str(tmp_path / "train.py"), "--without", "compile"]) == 2
    assert capsys.readouterr().err.splitlines() == [
        "train-manager: there is no trick 'compile'",
        "  did you mean 'Compile'?",
    ]
