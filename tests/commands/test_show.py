from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch

from train_manager import __version__, cli
from train_manager.checkpoints.checkpoint import write_checkpoint
from train_manager.checkpoints.hashed_file import hash_of
from train_manager.files.leftovers import delete
from train_manager.telling.findings import Finding


def checkpoint(train_dir: Path, step: int) -> Path:
    return train_dir / "checkpoints" / f"step-{step:012d}"


def lines(capsys: pytest.CaptureFixture[str]) -> list[str]:
    return capsys.readouterr().out.splitlines()


def test_the_newest_checkpoint_of_a_train_dir_is_shown(trained: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["show", str(trained)]) == 0

    first, *rest = lines(capsys)
    assert first == f"{checkpoint(trained, 6)} (the newest of 2)"
    shown = "\n".join(rest)
    for line in [
        "step        6",
        "epoch       2",
        "counts      step_num 6, update_num 6, samples_seen 80, optimizer_updates (1)",
        "history     epochs (2), evaluations (3)",
        "random      python, numpy, torch",
        "optimizer   optimizer: SGD, lr 0.25; 4 parameters, 4 tensors of state",
        "extension   ema: updates 6, average (4 tensors), name , others (none)",
        "model       4 tensors, 42 numbers",
        "  0.weight  8x2  F32",
    ]:
        assert f"\n{line}\n" in f"\n{shown}\n"
    assert re.search(r"^monitored   0\.\d+$", shown, re.MULTILINE)
    assert f"train_manager {__version__}" in shown


@pytest.mark.parametrize("which", ["checkpoints/step-000000000003", "checkpoints"])
def test_a_checkpoint_or_the_folder_of_them_is_shown(
    which: str, trained: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["show", str(trained / which)]) == 0

    assert lines(capsys)[0].startswith(str(trained / which))


def test_a_file_of_tensors_is_shown(trained: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = checkpoint(trained, 6) / "model.safetensors"

    assert cli.main(["show", str(file)]) == 0

    assert lines(capsys)[:3] == [str(file), "tensors     4 tensors, 42 numbers", "  0.bias    8    F32"]


def test_more_than_30_tensors_are_shown_when_all_are_asked_for(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write_checkpoint(tmp_path, "many", {"model": {f"{n:03}": torch.ones(1) for n in range(40)}}, {})

    cli.main(["show", str(path)])
    assert lines(capsys)[-2:] == ["  029  1  F32", "  and 10 more (--all shows them)"]

    cli.main(["show", "--all", str(path)])
    assert lines(capsys)[-1] == "  039  1  F32"


def test_of_a_damaged_checkpoint_the_manifest_is_shown(train_dir: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (checkpoint(train_dir, 6) / "model.safetensors").write_bytes(b"short")

    assert cli.main(["show", str(train_dir)]) == 1

    shown = lines(capsys)
    assert "step        6" in shown
    assert re.fullmatch(r"DAMAGED     model\.safetensors has 5 of \d+ bytes", shown[-1])


def test_a_damaged_file_of_tensors_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "model.safetensors"
    file.write_bytes(b"no tensors at all")

    assert cli.main(["show", str(file)]) == 1

    assert lines(capsys) == [str(file), "DAMAGED     it is not a safetensors file, or is cut off (header too large)"]


def test_recorded_parameters_are_shown_as_python_has_them(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    net = {"$object": "nets:Net", "arguments": {"width": 8}}
    parameters = {"$object": "train_manager:TrainManager", "arguments": {"model": net, "epochs": 3, "seed": None}}
    path = write_checkpoint(tmp_path, "recorded", {"parameters": parameters}, {})

    cli.main(["show", str(path)])

    assert [line for line in lines(capsys) if line.startswith("parameter ")] == [
        "parameter   model = Net(width=8)",
        "parameter   epochs = 3",
    ]


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("nowhere", "there is nothing at {path}"),
        ("", "there is no checkpoint in {path}\n  {cure}"),
        ("notes.txt", "{path} is neither a checkpoint nor a .safetensors file\n  {cure}"),
    ],
)
def test_what_cannot_be_shown_is_refused(
    name: str, told: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "notes.txt").touch()
    path = tmp_path / name

    assert cli.main(["show", str(path)]) == 2

    cure = "give a checkpoint, the train_dir of a training, or a .safetensors file"
    assert capsys.readouterr().err == f"train-manager: {told.format(path=path, cure=cure)}\n"


def test_what_checks_have_found_is_shown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    leak = Finding("batch leak", "error", "example 2 sees example 5", "body.mix", "split the batch")
    found = [leak.to_dict(), Finding("input", "warning", "all labels are 0").to_dict()]
    path = write_checkpoint(tmp_path, "found", {"findings": found}, {})

    cli.main(["show", str(path)])

    assert [line for line in lines(capsys) if line.startswith("finding ")] == [
        "finding     batch leak, error: example 2 sees example 5 (body.mix)",
        "finding     input, warning: all labels are 0",
    ]


def test_if_a_run_deletes_the_newest_one_while_it_is_read_the_next_one_is_shown(
    train_dir: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    newest, other = (train_dir / "checkpoints" / f"step-{step:012d}" for step in (6, 3))

    def hashed(path: Path) -> str:
        delete(newest)
        return hash_of(path)

    monkeypatch.setattr("train_manager.checkpoints.verification.hash_of", hashed)

    assert cli.main(["show", str(train_dir)]) == 0
    told = capsys.readouterr().out.splitlines()
    assert told[:2] == [f"{other} (the newest of 1)", "step        3"]
