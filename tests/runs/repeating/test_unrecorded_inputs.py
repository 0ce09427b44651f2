from __future__ import annotations

from pathlib import Path

import pytest

from train_manager.runs.repeating.unrecorded_inputs import MOST, unrecorded_inputs


def list_unrecorded(folder: Path, code: str, *patterns: str) -> list[str]:
    (folder / "train.py").write_text(code)
    return unrecorded_inputs(folder, {"environment": {"patterns": patterns}})


@pytest.mark.parametrize(
    "code",
    [
        'os.environ["LR"]',
        'environ["LR"]',
        'os.environ.get("LR")',
        'os.environ.get("LR", "0.1")',
        'os.getenv("LR")',
        'getenv("LR", 1)',
        'float(os.environ.pop("LR"))',
    ],
)
def test_a_variable_that_a_program_reads_is_named_with_its_line(tmp_path: Path, code: str) -> None:
    assert list_unrecorded(tmp_path, f"\nx = {code}") == [
        'train.py line 2 reads the variable LR, which was not recorded: RunRecord(variables=["LR"])'
    ]


@pytest.mark.parametrize("code", ["input()", "sys.stdin.read()", "for line in sys.stdin: pass", "fileinput.input()"])
def test_a_program_that_reads_the_standard_input_is_named(tmp_path: Path, code: str) -> None:
    assert list_unrecorded(tmp_path, code) == [
        "train.py line 1 reads the standard input, which is not recorded: let it read a file"
    ]


@pytest.mark.parametrize(
    "code",
    [
        'os.environ["LR"] = "1"',
        'os.environ["OMP_NUM_THREADS"]',  # recorded if it is set
        'os.environ["HOME"]',
        'os.environ["HF_TOKEN"]',  # a secret, which no record has
        r"x = '\d'",  # a warning would be an error here
        'settings.get("LR")',
        "os.environ[name]",
        "x.input()",
        "this is not Python",
    ],
)
def test_what_reads_nothing_of_that_is_not_named(tmp_path: Path, code: str) -> None:
    assert list_unrecorded(tmp_path, code) == []


def test_a_variable_that_was_asked_for_is_not_named(tmp_path: Path) -> None:
    assert list_unrecorded(tmp_path, 'os.environ["LR"], os.environ["APP_SIZE"]', "LR", "APP_*") == []


def test_a_virtual_environment_is_not_the_program(tmp_path: Path) -> None:
    (tmp_path / "venv" / "lib").mkdir(parents=True)
    (tmp_path / "venv" / "pyvenv.cfg").touch()
    (tmp_path / "venv" / "lib" / "x.py").write_text("input()")

    assert list_unrecorded(tmp_path, "") == []


def test_many_variables_are_cut(tmp_path: Path) -> None:
    assert len(list_unrecorded(tmp_path, "".join(f'os.environ["V{number}"]\n' for number in range(20)))) == MOST
