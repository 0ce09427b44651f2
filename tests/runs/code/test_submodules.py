"""A repository inside of a repository is a record of its own, and the outer one says in which state it is."""

from __future__ import annotations

import atexit
import functools
import shutil
import tempfile
from pathlib import Path
from typing import Any

from tests.runs.code.repositories import RUN, assert_put_back, git, head, kept_in, repository, tree, write
from train_manager.runs.code.restore import restore_code
from train_manager.runs.code.take import take_code_record


def with_submodule(folder: Path) -> Path:
    """A copy of a repository with a submodule in vendor/lib."""
    return Path(shutil.copytree(_original(), folder / "lab", symlinks=True))


@functools.cache
def _original() -> Path:
    folder = Path(tempfile.mkdtemp())
    atexit.register(shutil.rmtree, folder)
    lib = repository(folder / "lib", {"lib.py": b"lib\n"})
    root = repository(folder / "lab", {"train.py": b"print(1)\n"})
    git(root, "-c", "protocol.file.allow=always", "submodule", "--quiet", "add", str(lib), "vendor/lib")
    git(root, "commit", "-q", "-m", "submodule")
    return root


def entries(root: Path) -> list[dict[str, Any]]:
    record = take_code_record(root, root.parent / "runs", RUN)
    assert record["reason"] is None
    return list(record["repositories"])


def test_changes_in_a_submodule_are_kept(tmp_path: Path) -> None:
    root = with_submodule(tmp_path)
    write(root, {"vendor/lib/lib.py": b"LIB\n", "vendor/lib/new.py": b"new\n", "train.py": b"print(2)\n"})

    outer, inner = entries(root)

    assert [file["path"] for file in outer["files"]] == ["train.py"]
    assert [file["path"] for file in inner["files"]] == ["lib.py", "new.py"]
    assert_put_back(root)


def test_another_commit_of_a_submodule_is_put_back(tmp_path: Path) -> None:
    root = with_submodule(tmp_path)
    recorded = head(root / "vendor/lib")
    write(root, {"vendor/lib/lib.py": b"LIB\n"})
    git(root / "vendor/lib", "commit", "-q", "-a", "-m", "second")
    git(root, "add", "vendor/lib")  # staged does not count as recorded

    outer, _ = entries(root)

    commit = head(root / "vendor/lib")
    assert outer["submodules"] == {"vendor/lib": recorded}
    assert head(assert_put_back(root) / "vendor/lib") == commit


def test_of_a_submodule_that_is_not_checked_out_the_commit_is_told(tmp_path: Path) -> None:
    root = with_submodule(tmp_path)
    git(root, "submodule", "--quiet", "deinit", "--all")

    (outer,) = entries(root)

    assert outer["submodules"] == {"vendor/lib": git(root, "rev-parse", "HEAD:vendor/lib").decode().strip()}
    assert_put_back(root)


def test_a_file_in_the_place_of_a_submodule_is_put_back(tmp_path: Path) -> None:
    root = with_submodule(tmp_path)
    git(root, "submodule", "--quiet", "deinit", "--all")
    (root / "vendor/lib").rmdir()
    write(root, {"vendor/lib": b"a file\n"})

    (outer,) = entries(root)

    assert [(path, how) for path, (how, _) in kept_in(outer).items()] == [("vendor/lib", "stored")]
    assert_put_back(root)


def test_a_submodule_of_a_submodule_is_recorded(tmp_path: Path) -> None:
    inner = with_submodule(tmp_path / "inner")
    root = repository(tmp_path / "lab", {"train.py": b"print(1)\n"})
    allowed = ["-c", "protocol.file.allow=always"]
    git(root, *allowed, "submodule", "--quiet", "add", str(inner), "outer")
    git(root, "commit", "-q", "-m", "submodule")
    git(root, *allowed, "submodule", "--quiet", "update", "--init", "--recursive")
    write(root, {"outer/vendor/lib/new.py": b"new\n"})

    assert {entry["inside"] for entry in entries(root)} == {None, "outer", "outer/vendor/lib"}
    assert_put_back(root)


def test_a_repository_that_is_not_a_submodule_is_recorded_too(tmp_path: Path) -> None:
    root = repository(tmp_path / "lab", {"train.py": b"print(1)\n"})
    repository(root / "vendor", {"lib.py": b"lib\n"})

    outer, inner = entries(root)

    assert outer["submodules"] == {}
    assert inner["inside"] == "vendor"
    assert_put_back(root)


def test_the_repository_of_another_package_is_recorded_by_its_name(tmp_path: Path) -> None:
    root = repository(tmp_path / "lab", {"train.py": b"print(1)\n"})
    package = repository(tmp_path / "shapes", {"shapes/__init__.py": b"1\n"})
    write(package, {"shapes/__init__.py": b"2\n"})
    others = {"shapes": package / "shapes", "same": root, "nowhere": tmp_path}

    record = take_code_record(root, tmp_path / "runs", RUN, others=others)

    assert record["reason"] == "nowhere: not in a git repository"
    assert [entry["inside"] for entry in record["repositories"]] == [None, "shapes"]
    restored = restore_code(tmp_path / "runs", RUN, tmp_path / "again")
    assert tree(restored.packages["shapes"]) == tree(package)


def test_a_repository_inside_of_another_package_is_put_back_in_it(tmp_path: Path) -> None:
    root = repository(tmp_path / "lab", {"train.py": b"print(1)\n"})
    repository(root / "vendor", {"lib.py": b"of the code\n"})
    package = repository(tmp_path / "shapes", {"shapes.py": b"1\n"})
    repository(package / "vendor", {"lib.py": b"of the package\n"})

    record = take_code_record(root, tmp_path / "runs", RUN, others={"shapes": package})

    assert [entry["inside"] for entry in record["repositories"]] == [None, "vendor", "shapes", "shapes/vendor"]
    restored = restore_code(tmp_path / "runs", RUN, tmp_path / "again")
    assert (tree(restored.root), tree(restored.packages["shapes"])) == (tree(root), tree(package))
