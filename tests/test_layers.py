"""Who may import whom, read from the source: extensions -> manager -> core, and the core's files in their order."""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import train_manager.core

ROOT = Path(__file__).parent.parent
CORE = sorted((ROOT / "train_manager" / "core").glob("*.py"))
TOP = {"train_manager.demo", "train_manager.cli"}
MANAGER = [path for path in sorted((ROOT / "train_manager").glob("*.py")) if path.stem not in ("demo", "cli")]
EXTENSIONS = sorted((ROOT / "extensions").glob("**/*.py"))
ALL = [*CORE, *MANAGER, *EXTENSIONS]

ORDER = re.findall(r"^    (\w+) {2,}\w", train_manager.core.__doc__ or "", flags=re.MULTILINE)


def imported(path: Path) -> Iterator[str]:
    """Full names of all modules that a file imports, inside functions and under TYPE_CHECKING too."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}:{node.lineno} imports relatively"
            assert node.module is not None
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def name_of(path: Path) -> str:
    return str(path.relative_to(ROOT))


def test_the_list_in_the_cores_docstring_is_its_files() -> None:
    assert sorted(ORDER) == [path.stem for path in CORE if path.stem != "__init__"]


@pytest.mark.parametrize("path", CORE, ids=name_of)
def test_a_file_of_the_core_imports_the_standard_library_and_the_files_listed_before_it(path: Path) -> None:
    before = ORDER[: ORDER.index(path.stem)] if path.stem != "__init__" else []
    parts = [name.split(".") for name in imported(path)]
    for package, *rest in parts:
        if package == "train_manager":
            assert rest[0] == "core"
            assert not rest[1:] or rest[1] in before
        else:
            assert package in sys.stdlib_module_names


@pytest.mark.parametrize("path", MANAGER, ids=name_of)
def test_a_file_of_the_manager_imports_no_extension(path: Path) -> None:
    assert not [name for name in imported(path) if name.startswith("train_manager.extensions")]


@pytest.mark.parametrize("path", [path for path in EXTENSIONS if path.name != "__init__.py"], ids=name_of)
def test_an_extension_imports_no_other_extension(path: Path) -> None:
    assert not [name for name in imported(path) if name.startswith("train_manager.extensions")]


@pytest.mark.parametrize("path", ALL, ids=name_of)
def test_nobody_imports_the_top_layer(path: Path) -> None:
    assert not TOP & set(imported(path))


@pytest.mark.parametrize("path", [*ALL, *sorted((ROOT / "tests").glob("**/*.py"))], ids=name_of)
def test_the_extensions_are_imported_by_their_full_name_only(path: Path) -> None:
    assert not [name for name in imported(path) if name.split(".")[0] == "extensions"]
