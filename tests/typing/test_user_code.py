"""What users write passes their type checkers, in a folder outside of the repository.

The checkers see what an editor sees: the environment in which the library is installed. mypy runs as it is installed,
pyright in its mode "standard"; ``basedpyright`` is pyright with its own node, so that it downloads nothing.
"""

from __future__ import annotations

import importlib.util
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
KNOWN_TYPES = Path(__file__).parent / "known_types.py"
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs" / "tutorials").glob("*.md"))]
PYTHON_BLOCK = re.compile(r"^```python\n(.*?)^```$", flags=re.MULTILINE | re.DOTALL)

pytestmark = pytest.mark.slow


def program(page: Path) -> str:
    """Return the blocks of a page as one program, as a reader pastes them."""
    blocks = PYTHON_BLOCK.findall(page.read_text(encoding="utf-8"))
    assert blocks
    return without_stubs("\n".join(blocks))


def without_stubs(code: str) -> str:
    """Return a program whose import of scikit-learn, which has no types, is not checked."""
    return re.sub(r"^from sklearn.*$", r"\g<0>  # type: ignore", code, flags=re.MULTILINE)


def run(folder: Path, *command: str) -> str:
    environment = {name: value for name, value in os.environ.items() if name not in ("MYPYPATH", "PYTHONPATH")}
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False, env=environment)
    return done.stdout + done.stderr


def mypy(path: Path) -> list[str]:
    """Return the errors that mypy finds in a file, in the mode that it has by default."""
    cache = ROOT / ".mypy_cache" / "of_users"  # torch takes half a minute without one
    output = run(path.parent, sys.executable, "-m", "mypy", "--cache-dir", str(cache), "--no-error-summary", path.name)
    return [line for line in output.splitlines() if "rror" in line]


def pyright(path: Path) -> list[str]:
    """Return the errors that pyright finds in a file."""
    if importlib.util.find_spec("basedpyright") is None:
        pytest.skip("basedpyright is not installed; it is part of the extra [dev]")
    (path.parent / "pyrightconfig.json").write_text(json.dumps({"typeCheckingMode": "standard"}))
    command = ["-m", "basedpyright", "--pythonpath", sys.executable, "--outputjson", path.name]
    output = json.loads(run(path.parent, sys.executable, *command))
    found = output["generalDiagnostics"]
    return [f"{one['range']['start']['line'] + 1}: {one['message']}" for one in found]


checkers = pytest.mark.parametrize("checker", [mypy, pyright])


def errors(checker: Callable[[Path], list[str]], folder: Path, code: str) -> list[str]:
    path = folder / "user.py"
    path.write_text(code, encoding="utf-8")
    return checker(path)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
@checkers
def test_the_examples_of_a_page_have_no_type_error(
    checker: Callable[[Path], list[str]], page: Path, tmp_path: Path
) -> None:
    assert errors(checker, tmp_path, program(page)) == []


@checkers
def test_a_first_training_has_no_type_error(checker: Callable[[Path], list[str]], tmp_path: Path) -> None:
    code = (ROOT / "examples" / "digits.py").read_text(encoding="utf-8")

    assert errors(checker, tmp_path, without_stubs(code)) == []


@checkers
def test_a_mistake_in_user_code_is_found(checker: Callable[[Path], list[str]], tmp_path: Path) -> None:
    """Else the library is not seen at all, and everything passes as Any."""
    code = "from train_manager import TrainManager\nTrainManager(modle=None)\n"

    assert any("modle" in error for error in errors(checker, tmp_path, code))


@checkers
def test_the_attributes_of_a_manager_have_the_known_types(checker: Callable[[Path], list[str]], tmp_path: Path) -> None:
    assert errors(checker, tmp_path, KNOWN_TYPES.read_text(encoding="utf-8")) == []


@checkers
def test_another_type_than_the_known_one_is_found(checker: Callable[[Path], list[str]], tmp_path: Path) -> None:
    code = KNOWN_TYPES.read_text(encoding="utf-8").replace("decay, float", "decay, int")

    assert len(errors(checker, tmp_path, code)) == 1
