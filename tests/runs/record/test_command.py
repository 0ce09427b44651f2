"""The command that started a program, read from Python's own arguments, and the one that starts it again."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.support.rotation import in_turn
from train_manager import InputError
from train_manager.runs.record.command import run_again

PRINTS = """
import json, sys
from train_manager.runs.record.command import command, run_again
found = command()
try:
    again = run_again({"command": found})
except Exception as error:
    again = str(error)
print(json.dumps([sys.argv[1:], found, again]))
"""


@pytest.fixture
def program(tmp_path: Path) -> Path:
    """A folder with a script ``train.py``, which is also the module ``pack.train``."""
    (tmp_path / "pack").mkdir()
    for path in (tmp_path / "train.py", tmp_path / "pack" / "train.py"):
        path.write_text(PRINTS)
    return tmp_path


def run(arguments: list[str], folder: Path, given: str | None = None) -> Any:
    done = subprocess.run(arguments, cwd=folder, capture_output=True, text=True, input=given, check=True)
    return json.loads(done.stdout)


OPTIONS = ["-W", "ignore::UserWarning", "-X", "utf8", "-O", "-u"]


@pytest.mark.parametrize(
    ("given", "kind"),
    [
        ([*OPTIONS, "train.py", "--lr", "0.1", "a b", "-m", "é"], "script"),
        (["-Wignore", "-OOm", "pack.train", "-c", "x", "-", "--help"], "module"),
        (["-c", PRINTS, "--lr=1"], "code"),
    ],
)
def test_a_command_is_run_again_as_it_was(program: Path, given: list[str], kind: str) -> None:
    arguments, found, again = run([sys.executable, *given], program)

    assert (found["kind"], found["folder"], found["hidden"]) == (kind, str(program), [])
    assert run(again, program) == [arguments, found, again]
    assert again[1:] == given


def test_a_script_is_named_in_full(program: Path) -> None:
    _, found, _ = run([sys.executable, "./pack/../train.py"], program)

    assert (found["script"], found["module"]) == (str(program / "train.py"), None)


def test_the_folder_is_that_of_the_command_also_if_the_program_has_left_it(program: Path) -> None:
    (program / "leaves.py").write_text("import os; os.chdir('/')\n" + PRINTS)
    _, found, _ = run([sys.executable, "leaves.py"], program)

    assert found["folder"] == str(program)


SPAWNS = """
import multiprocessing, os, sys
from train_manager.runs.record.command import command

def tell(folder):
    import json, pathlib
    pathlib.Path(folder, "told").write_text(json.dumps(command()))

if __name__ == "__main__":
    with multiprocessing.get_context(sys.argv[1]).Pool(1) as pool:
        pool.map(tell, [os.getcwd()])
"""


@pytest.mark.parametrize(
    ("started", "way"), in_turn([["train.py"], ["-m", "pack.train"]], ["fork", "spawn", "forkserver"])
)
def test_a_process_of_a_program_has_the_command_of_the_program(program: Path, way: str, started: list[str]) -> None:
    for path in (program / "train.py", program / "pack" / "train.py"):
        path.write_text(SPAWNS)
    subprocess.run([sys.executable, "-X", "dev", *started, way], cwd=program, check=True)
    found = json.loads((program / "told").read_text())

    assert found["kind"] == ("module" if "-m" in started else "script")
    assert [argument for argument in found["arguments"][1:] if argument != "-B"] == ["-X", "dev", *started, way]
    assert (found["script"], found["folder"]) == (
        str(program / started[-1].replace("pack.train", "pack/train.py")),
        str(program),
    )


def test_a_program_from_standard_input_cannot_be_run_again(program: Path) -> None:
    _, found, again = run([sys.executable, "-", "x"], program, PRINTS)

    assert (found["kind"], found["script"]) == ("interactive", None)
    assert again == (
        "the run was that of an interactive session, so it cannot be run again\n"
        "  write what was typed into a file, and run that"
    )


def test_a_secret_is_hidden_and_then_the_command_is_not_run_again(program: Path) -> None:
    _, found, again = run([sys.executable, "train.py", "--api-key", "abc", "hf_token=def", "--lr", "1"], program)

    assert found["arguments"][1:] == ["train.py", "--api-key", "***", "hf_token=***", "--lr", "1"]
    assert found["hidden"] == [3, 4]
    assert again == (
        "the run was that of a command whose argument 3 looks like a secret, and was not recorded, so it cannot be "
        "run again\n  let the program read it from an environment variable"
    )


def test_a_package_and_a_folder_are_started_by_their_main_files(program: Path) -> None:
    (program / "pack" / "__main__.py").write_text(PRINTS)
    _, of_package, again = run([sys.executable, "-m", "pack"], program)
    _, of_folder, _ = run([sys.executable, "pack"], program)

    assert (of_package["kind"], of_package["module"], again[1:]) == ("module", "pack", ["-m", "pack"])
    assert (of_folder["kind"], of_folder["script"]) == ("script", str(program / "pack" / "__main__.py"))


@pytest.mark.parametrize(
    ("recorded", "what"),
    [
        ({"kind": "notebook", "arguments": ["python", "-m", "ipykernel"]}, "a notebook"),
        ({}, "a program whose command was not recorded"),
    ],
)
def test_what_is_no_command_of_its_own_cannot_be_run_again(recorded: dict[str, Any], what: str) -> None:
    with pytest.raises(InputError, match=f"^the run was that of {what}.*, so it cannot be run again\n  "):
        run_again({"command": recorded})
