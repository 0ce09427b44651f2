from __future__ import annotations

from pathlib import Path

import pytest

from train_manager import cli
from train_manager.checkpoints.hashed_file import hash_of
from train_manager.files.leftovers import delete


def checkpoint(train_dir: Path, step: int) -> Path:
    return train_dir / "checkpoints" / f"step-{step:012d}"


def lines(capsys: pytest.CaptureFixture[str]) -> list[str]:
    return capsys.readouterr().out.splitlines()


def test_each_checkpoint_of_a_training_is_checked(trained: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["check", str(trained)]) == 0

    assert lines(capsys) == ["step-000000000003  sound", "step-000000000006  sound"]


def test_one_checkpoint_is_checked(trained: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["check", str(checkpoint(trained, 3))]) == 0

    assert lines(capsys) == ["step-000000000003  sound"]


def test_damage_is_named_and_nothing_is_renamed(train_dir: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = checkpoint(train_dir, 3) / "state.json"
    file.write_bytes(file.read_bytes().replace(b"epoch", b"epocH", 1))
    before = sorted(train_dir.rglob("*"))

    assert cli.main(["check", str(train_dir)]) == 1

    assert lines(capsys) == [
        "step-000000000003  damaged: state.json has changed since it was written (its SHA-256 differs)",
        "step-000000000006  sound",
    ]
    assert sorted(train_dir.rglob("*")) == before


def test_what_was_left_over_or_set_aside_is_named(train_dir: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in (".tmp-step-000000000009-0f3c5b7a", "damaged-step-000000000002", "superseded"):
        (train_dir / "checkpoints" / name).mkdir()

    assert cli.main(["check", str(train_dir)]) == 0

    assert lines(capsys)[2:] == [
        ".tmp-step-000000000009-0f3c5b7a  left half-written or half-deleted by a killed process; "
        "the next training removes it",
        "damaged-step-000000000002  set aside, because it is damaged",
        "superseded  set aside, because a training resumed from an earlier checkpoint",
    ]


def test_one_that_a_run_deletes_while_it_is_checked_is_not_damaged(
    train_dir: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def hashed(path: Path) -> str:
        delete(checkpoint(train_dir, 3))
        return hash_of(path)

    monkeypatch.setattr("train_manager.checkpoints.verification.hash_of", hashed)

    assert cli.main(["check", str(train_dir)]) == 0
    assert lines(capsys) == ["step-000000000006  sound"]
