from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from train_manager.runs.code.modules import code_folder, entry_script, loaded_files

TELL = """
import importlib.util
import json
from train_manager.runs.code.modules import code_folder, entry_script, loaded_files
print(json.dumps([str(code_folder()), str(entry_script()), [str(path) for path in loaded_files()]]))
"""


def project(folder: Path, main: str = TELL) -> Path:
    """Make a package ``own`` with its parts, and modules that are never imported."""
    for name, text in {
        "own/__init__.py": "",
        "own/part.py": "import own.deeper",
        "own/deeper/__init__.py": "",
        "own/unused.py": "",
        "own/train.py": f"import own.part\n{main}",
        "train.py": f"import own.part\n{main}",
    }.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return folder


def find_loaded(*arguments: str, folder: Path) -> tuple[str, str, list[str]]:
    run = subprocess.run([sys.executable, *arguments], cwd=folder, capture_output=True, text=True, check=True)
    root, script, files = json.loads(run.stdout)
    return root, script, [str(Path(file).relative_to(root)) for file in files]


OWN = ["own/__init__.py", "own/deeper/__init__.py", "own/part.py"]


def test_a_script_and_what_it_imports_from_its_folder_are_loaded(tmp_path: Path) -> None:
    folder = project(tmp_path)

    assert find_loaded(str(folder / "train.py"), folder=Path("/")) == (
        str(folder),
        str(folder / "train.py"),
        [*OWN, "train.py"],
    )


def test_the_folder_of_a_module_is_that_of_its_package(tmp_path: Path) -> None:
    folder = project(tmp_path)

    assert find_loaded("-m", "own.train", folder=folder) == (
        str(folder),
        str(folder / "own/train.py"),
        [*OWN, "own/train.py"],
    )


def test_without_a_script_the_working_folder_counts(tmp_path: Path) -> None:
    folder = project(tmp_path)

    assert find_loaded("-c", f"import own.part\n{TELL}", folder=folder) == (str(folder), "None", OWN)


def test_a_script_that_is_reached_by_a_link_lies_where_its_file_is(tmp_path: Path) -> None:
    folder = project(tmp_path / "real")
    (tmp_path / "link").symlink_to(folder)

    assert find_loaded(str(tmp_path / "link" / "train.py"), folder=Path("/"))[0] == str(folder)


def test_a_command_that_is_installed_is_not_the_users_script() -> None:
    assert entry_script() is None  # it is pytest
    assert code_folder() == Path.cwd()


def test_what_is_installed_is_not_recorded() -> None:
    assert torch.__file__
    assert not [path for path in loaded_files(Path("/")) if "site-packages" in path.parts or "json" in path.parts]


def test_an_object_among_the_modules_that_is_none_is_passed_over(monkeypatch: Any) -> None:
    class Odd:
        @property
        def __file__(self) -> str:
            raise RuntimeError("not now")

    monkeypatch.setitem(sys.modules, "odd", Odd())
    monkeypatch.setitem(sys.modules, "none", None)

    assert isinstance(loaded_files(), list)


def test_a_lazy_module_is_not_imported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "lazy_one.py"
    path.write_text("raise AssertionError('imported')")
    spec = importlib.util.spec_from_file_location("lazy_one", path)
    assert spec is not None
    assert spec.loader is not None
    spec.loader = importlib.util.LazyLoader(spec.loader)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    monkeypatch.setitem(sys.modules, "lazy_one", module)

    assert loaded_files(tmp_path) == [path]
