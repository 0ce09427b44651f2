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
from typing import cast

import pytest

ROOT = Path(__file__).parents[2]
KNOWN_TYPES = Path(__file__).parent / "known_types.py"
# The programs of learner-from-files are files that import each other, those of examples/learner, which mypy checks.
TUTORIALS = [page for page in (ROOT / "docs" / "tutorials").glob("*.md") if page.stem != "learner-from-files"]
PAGES = [ROOT / "README.md", *sorted(TUTORIALS)]
PYTHON_BLOCK = re.compile(r"^```python\n(.*?)^```$", flags=re.MULTILINE | re.DOTALL)

# mypy reads torch for half a minute in a fresh clone; the known types and the examples are checked by `make check` too.
pytestmark = [pytest.mark.slow, pytest.mark.whole]


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


def mypy(folder: Path) -> list[tuple[str, str]]:
    """Return the errors that mypy finds in a folder, each with its file, in the mode that it has by default."""
    cache = ROOT / ".mypy_cache" / "of_users"  # torch takes half a minute without one
    output = run(folder, sys.executable, "-m", "mypy", "--cache-dir", str(cache), "--no-error-summary", ".")
    return [(line.partition(":")[0], line) for line in output.splitlines() if "rror" in line]


def pyright(folder: Path) -> list[tuple[str, str]]:
    """Return the errors that pyright finds in a folder, each with its file."""
    if importlib.util.find_spec("basedpyright") is None:
        pytest.skip("basedpyright is not installed; it is part of the extra [dev]")
    (folder / "pyrightconfig.json").write_text(json.dumps({"typeCheckingMode": "standard"}))
    command = ["-m", "basedpyright", "--pythonpath", sys.executable, "--outputjson", "."]
    found = json.loads(run(folder, sys.executable, *command))["generalDiagnostics"]
    return [(Path(one["file"]).name, f"{one['range']['start']['line'] + 1}: {one['message']}") for one in found]


def programs() -> dict[str, str]:
    """Return the programs of users that are checked, by the names of their files: all at once, which is quicker."""
    known = KNOWN_TYPES.read_text(encoding="utf-8")
    return {
        **{f"{page.stem.replace('-', '_').lower()}.py": program(page) for page in PAGES},
        "digits.py": without_stubs((ROOT / "examples" / "digits.py").read_text(encoding="utf-8")),
        "misspelt.py": "from train_manager import TrainManager\nTrainManager(modle=None)\n",
        "known_types.py": known,
        "other_type.py": known.replace("warm_up, bool", "warm_up, int"),
    }


Checker = Callable[[Path], list[tuple[str, str]]]
Errors = dict[str, list[str]]


@pytest.fixture(scope="module", params=[mypy, pyright], ids=["mypy", "pyright"])
def errors(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Errors:
    """The errors that a checker finds, by file."""
    folder, checker = tmp_path_factory.mktemp("user"), cast("Checker", request.param)
    for name, code in programs().items():
        (folder / name).write_text(code, encoding="utf-8")
    found = checker(folder)
    return {name: [told for file, told in found if file == name] for name in programs()}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_the_examples_of_a_page_have_no_type_error(page: Path, errors: Errors) -> None:
    assert errors[f"{page.stem.replace('-', '_').lower()}.py"] == []


def test_a_first_training_has_no_type_error(errors: Errors) -> None:
    assert errors["digits.py"] == []


def test_a_mistake_in_user_code_is_found(errors: Errors) -> None:
    """Else the library is not seen at all, and everything passes as Any."""
    assert any("modle" in error for error in errors["misspelt.py"])


def test_the_attributes_of_a_manager_have_the_known_types(errors: Errors) -> None:
    assert errors["known_types.py"] == []


def test_another_type_than_the_known_one_is_found(errors: Errors) -> None:
    assert len(errors["other_type.py"]) == 1
