"""What every command says to a program: one JSON document on the standard output, also of an error."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any

import pytest

from tests.commands.test_check import checkpoint
from train_manager import cli
from train_manager.commands.answer import nothing_printed

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "command-line.md"
COMMANDS = next(action.choices for action in cli.parser()._actions if action.choices)


def answer(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, Any]:
    """The exit code of a command with --json, and its document."""
    code = cli.main([*arguments, "--json"])
    return code, json.loads(capsys.readouterr().out, parse_constant=pytest.fail)


@pytest.mark.parametrize("command", [*(COMMANDS or ())])
def test_every_command_says_an_invalid_argument_as_json(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    code, data = answer(capsys, command, "--nonsense")

    assert code == 2
    assert [*data] == ["error"]
    assert data["error"]["code"] == "UsageError"


MISTAKES = {
    "show": ["nowhere"],
    "check": ["nowhere"],
    "runs": ["nowhere"],
    "compare": ["nowhere"],
    "report": ["nowhere"],
    "export": ["nowhere", "--to", "wandb"],
    "reproduce": ["nowhere"],
    "verify-resume": ["nowhere.py"],
    "tune": ["nowhere.py"],
}


@pytest.mark.parametrize("command", MISTAKES)
def test_an_error_is_json_with_its_class_and_its_cure(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    code, data = answer(capsys, command, *MISTAKES[command])

    assert code == 2
    assert [*data["error"]] == ["code", "message", "name", "cure"]
    assert data["error"]["code"] in ("InputError", "CheckpointError")


@pytest.mark.parametrize("command", ["show", "check", "runs", "skill"])
def test_the_reference_lists_the_keys_of_the_document(
    command: str, trained: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    _, data = answer(capsys, command, *([] if command == "skill" else [str(trained)]))
    row = re.findall(rf"^\| `{command}` \| (.*) \|$", PAGE.read_text(), re.MULTILINE)[0]

    assert re.findall(r"`(\w+)`", re.sub(r"\(.*?\)", "", row)) == [*data]


def test_a_checkpoint_is_shown_as_data(trained: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, data = answer(capsys, "show", str(trained))

    assert code == 0
    assert (data["path"], data["problem"], data["epoch"]) == (str(checkpoint(trained, 6)), "", 2)
    assert data["manifest"]["step"] == data["counts"]["step_num"] == 6
    assert data["parameters"]["epochs"] == "2"
    assert data["tensors"][0] == {"name": "0.bias", "shape": [8], "dtype": "F32"}


def test_of_a_damaged_checkpoint_the_sound_part_is_shown(train_dir: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (checkpoint(train_dir, 6) / "model.safetensors").write_bytes(b"short")
    code, data = answer(capsys, "show", str(train_dir))

    assert code == 1
    assert data["problem"].startswith("model.safetensors has 5 of ")
    assert (data["manifest"]["step"], data["tensors"]) == (6, None)


def test_the_states_of_checkpoints_are_data(train_dir: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (checkpoint(train_dir, 3) / "state.json").unlink()
    (train_dir / "checkpoints" / "superseded").mkdir()
    code, data = answer(capsys, "check", str(train_dir))

    assert code == 1
    assert [(one["name"][-1], one["status"]) for one in data["checkpoints"]] == [("3", "damaged"), ("6", "sound")]
    assert [one["name"] for one in data["others"]] == ["superseded"]


def test_what_is_printed_meanwhile_goes_to_the_standard_error(capfd: pytest.CaptureFixture[str]) -> None:
    with nothing_printed():
        print("by Python")
        os.system("echo by a program")
    print("{}")

    out, err = capfd.readouterr()
    assert out == "{}\n"
    assert sorted(err.split("\n")) == ["", "by Python", "by a program"]
