"""Which files may import which, read from the source: each room and each file imports only those listed before it."""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import train_manager

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "train_manager"
EXTENSIONS = sorted((ROOT / "extensions").rglob("*.py"))
LIBRARY = sorted(path for path in PACKAGE.rglob("*.py") if "extensions" not in path.relative_to(PACKAGE).parts)
ALL = [*LIBRARY, *EXTENSIONS]

TOP = {"demo", "commands", "cli"}  # may import all; no file imports them, but cli the commands, and __main__ cli
OF_THE_TOP = {"commands": {"commands"}, "cli.py": {"commands"}}  # which of it these import
STANDARD_LIBRARY_ONLY = ("core", "checker")
LAZY = {
    "core/extensible.py": {"checker"},  # check() and explain() import the checker when they are called
}


def listed(text: str | None) -> list[str]:
    """The names that a package's docstring lists, in order."""
    _, _, files = (text or "").partition("above it:\n")
    return re.findall(r"^    (\w+) +\w", files, flags=re.MULTILINE)


def docstring(path: Path) -> str | None:
    return ast.get_docstring(ast.parse(path.read_text(encoding="utf-8")), clean=False)


ROOMS = listed(train_manager.__doc__)
PACKAGES = sorted(path.parent for path in PACKAGE.glob("*/__init__.py") if path.parent.name != "extensions")


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


def rooms_imported(path: Path) -> set[str]:
    """The rooms of the library that a file imports: packages, and files beside packages."""
    parts = [name.split(".") for name in imported(path)]
    return {rest[0] for package, *rest in parts if package == "train_manager" and rest} & {*ROOMS, *TOP}


def name_of(path: Path) -> str:
    return str(path.relative_to(ROOT))


def test_the_list_in_the_packages_docstring_is_its_rooms() -> None:
    files = [path.stem for path in PACKAGE.glob("*.py") if path.stem not in ("__init__", "_version")]
    folders = [path.parent.name for path in PACKAGE.glob("*/__init__.py")]

    assert sorted(ROOMS) == sorted([*files, *folders])


@pytest.mark.parametrize("package", PACKAGES, ids=name_of)
def test_the_list_in_a_rooms_docstring_is_its_files(package: Path) -> None:
    files = [path.stem for path in package.glob("*.py") if path.stem != "__init__"]

    assert sorted(listed(docstring(package / "__init__.py"))) == sorted(files)


@pytest.mark.parametrize("path", [path for path in LIBRARY if path.parent != PACKAGE], ids=name_of)
def test_a_file_imports_only_the_rooms_listed_before_its_own(path: Path) -> None:
    room = path.relative_to(PACKAGE).parts[0]
    before = {*ROOMS[: ROOMS.index(room) + 1], *LAZY.get(str(path.relative_to(PACKAGE)), ())}

    assert rooms_imported(path) <= before


@pytest.mark.parametrize("path", [path for path in LIBRARY if path.parent == PACKAGE], ids=name_of)
def test_a_file_beside_the_rooms_imports_only_those_listed_before_it(path: Path) -> None:
    if path.stem in ROOMS:
        before = {*ROOMS[: ROOMS.index(path.stem)], *LAZY.get(path.name, ())}
        assert rooms_imported(path) <= before


@pytest.mark.parametrize(
    "path", [path for path in LIBRARY if path.parent != PACKAGE and path.stem != "__init__"], ids=name_of
)
def test_a_file_imports_only_those_of_its_room_that_are_listed_before_it(path: Path) -> None:
    order = listed(docstring(path.parent / "__init__.py"))
    room = ".".join(["train_manager", *path.relative_to(PACKAGE).parts[:-1]])
    own = {name.removeprefix(f"{room}.").split(".")[0] for name in imported(path) if name.startswith(f"{room}.")}

    assert own & {*order} <= {*order[: order.index(path.stem)]}


@pytest.mark.parametrize("path", [path for path in LIBRARY if path.parent.name in STANDARD_LIBRARY_ONLY], ids=name_of)
def test_the_core_and_the_checker_import_nothing_but_the_standard_library(path: Path) -> None:
    packages = {name.split(".")[0] for name in imported(path)} - {"train_manager"}

    assert packages <= sys.stdlib_module_names


@pytest.mark.parametrize("path", [path for path in EXTENSIONS if path.name != "__init__.py"], ids=name_of)
def test_an_extension_imports_no_other_extension(path: Path) -> None:
    assert not [name for name in imported(path) if name.startswith("train_manager.extensions")]


@pytest.mark.parametrize("path", [path for path in ALL if path.stem != "__main__"], ids=name_of)
def test_no_file_imports_the_top_layer(path: Path) -> None:
    above = TOP - OF_THE_TOP.get(path.relative_to(ROOT).parts[1], set())

    assert not above & {name.split(".")[1] for name in imported(path) if name.startswith("train_manager.")}


@pytest.mark.parametrize("path", [*ALL, *sorted((ROOT / "tests").rglob("*.py"))], ids=name_of)
def test_the_extensions_are_imported_by_their_full_name_only(path: Path) -> None:
    assert not [name for name in imported(path) if name.split(".")[0] == "extensions"]
