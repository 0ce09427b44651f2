"""Which files may import which, read from the source: each room and each file imports only those listed before it."""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "train_manager"
EXTENSIONS = sorted((ROOT / "extensions").rglob("*.py"))
LIBRARY = sorted(path for path in PACKAGE.rglob("*.py") if "extensions" not in path.relative_to(PACKAGE).parts)
ALL = [*LIBRARY, *EXTENSIONS]
ROOMS = [path.parent for path in LIBRARY if path.stem == "__init__"]  # the package itself, and rooms inside of rooms

TOP = {"demo", "commands", "cli"}  # may import all; no file imports them, but cli the commands, and __main__ cli
OF_THE_TOP = {"commands": {"commands"}, "cli.py": {"commands"}}  # which of it these import
STANDARD_LIBRARY_ONLY = ("telling", "core", "checker")
ARROWS_UP = {
    "core/extensible.py": {"checker"},  # check() and explain() import the checker when they are called
}


@cache
def source_of(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


@cache
def listed(room: Path) -> tuple[str, ...]:
    """The names that a package's docstring lists, in order."""
    docstring = ast.get_docstring(source_of(room / "__init__.py"), clean=False) or ""
    _, _, names = docstring.partition("above it:\n")
    return tuple(re.findall(r"^    (\w+) +\w", names, flags=re.MULTILINE))


def statements(node: ast.AST) -> Iterator[ast.AST]:
    """All statements within a node; imports are some, and to walk the expressions too takes ten times as long."""
    for name in ("body", "orelse", "finalbody", "handlers", "cases"):
        for child in getattr(node, name, ()):
            yield child
            yield from statements(child)


@cache
def imported(path: Path) -> frozenset[str]:
    """Full names of all modules that a file imports, inside functions and under TYPE_CHECKING too."""
    return frozenset(_imported(path))


def _imported(path: Path) -> Iterator[str]:
    for node in statements(source_of(path)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}:{node.lineno} imports relatively"
            assert node.module is not None
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def place_of(path: Path) -> Path:
    """The path of a file within the package: the extensions lie beside it, and are imported as a room of it."""
    return path.relative_to(PACKAGE if path.is_relative_to(PACKAGE) else ROOT)


def imported_from(room: Path, path: Path) -> set[str]:
    """The names right below a room that a file imports."""
    name = ".".join(["train_manager", *room.relative_to(PACKAGE).parts, ""])
    return {other.removeprefix(name).split(".")[0] for other in imported(path) if other.startswith(name)}


def name_of(path: Path) -> str:
    return str(path.relative_to(ROOT))


def imports_from_below(room: Path) -> Iterator[str]:
    """What a file of a room, or of a room inside of it, imports although the room lists it later."""
    names = listed(room)
    within = room.relative_to(PACKAGE).parts
    for path in (path for path in ALL if place_of(path).parts[: len(within)] == within):
        own = place_of(path).parts[len(within)].removesuffix(".py")
        if own in names:
            before = {*names[: names.index(own)], *ARROWS_UP.get(str(place_of(path)), ())}
            here = {own} if place_of(path).parts[len(within) + 1 :] else set()  # files of a room inside of this one
            wrong = imported_from(room, path) & {*names} - before - here
            yield from (f"{name_of(path)} imports {name}" for name in sorted(wrong))


def test_the_list_in_the_docstring_of_a_room_is_what_the_room_holds() -> None:
    for room in ROOMS:
        files = [path.stem for path in room.glob("*.py") if path.stem not in ("__init__", "_version")]
        rooms = [path.parent.name for path in room.glob("*/__init__.py")]

        assert sorted(listed(room)) == sorted([*files, *rooms]), name_of(room)


def test_a_file_imports_only_the_rooms_and_files_that_are_listed_before_its_own() -> None:
    assert [wrong for room in ROOMS for wrong in imports_from_below(room)] == []


def test_the_lazy_import_of_the_checker_is_the_only_arrow_up() -> None:
    assert {"core/extensible.py": {"checker"}} == ARROWS_UP
    assert "checker" in imported_from(PACKAGE, PACKAGE / "core" / "extensible.py")


def test_the_ground_floor_the_core_and_the_checker_import_nothing_but_the_standard_library() -> None:
    for path in (path for path in LIBRARY if place_of(path).parts[0] in STANDARD_LIBRARY_ONLY):
        packages = {name.split(".")[0] for name in imported(path)} - {"train_manager"}

        assert packages <= sys.stdlib_module_names, name_of(path)


def test_the_loop_and_what_it_is_made_of_import_nothing_of_the_runs() -> None:
    below = [*train_manager_rooms_before("runs"), "stages", "manager"]
    wrong = [name_of(path) for path in LIBRARY if room_of(path) in below and "runs" in imported_from(PACKAGE, path)]

    assert wrong == []


def train_manager_rooms_before(name: str) -> tuple[str, ...]:
    return listed(PACKAGE)[: listed(PACKAGE).index(name)]


def room_of(path: Path) -> str:
    return place_of(path).parts[0].removesuffix(".py")


def test_an_extension_imports_no_other_extension() -> None:
    plain = [path for path in EXTENSIONS if path.name != "__init__.py"]

    assert [name_of(path) for path in plain if "extensions" in imported_from(PACKAGE, path)] == []


def test_no_file_imports_the_top_layer() -> None:
    for path in (path for path in ALL if path.stem != "__main__"):
        above = TOP - OF_THE_TOP.get(place_of(path).parts[0], set())

        assert not above & imported_from(PACKAGE, path), name_of(path)


def test_the_extensions_are_imported_by_their_full_name_only() -> None:
    by_the_other_door = re.compile(r"^\s*(?:from|import) extensions\b", re.MULTILINE)
    for path in [*ALL, *sorted((ROOT / "tests").rglob("*.py"))]:
        assert by_the_other_door.search(path.read_text(encoding="utf-8")) is None, name_of(path)
