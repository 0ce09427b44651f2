"""A file counts as changed if its bytes are not those of the commit, although git calls it unchanged."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from tests.runs.code.repositories import RUN, assert_put_back, git, repository, write
from train_manager.runs.code.left_out import Limits
from train_manager.runs.code.take import take_code_record

ROTATE = "tr a-z n-za-m"  # keeps the size


def checked_out(folder: Path, attributes: bytes, content: bytes, *settings: tuple[str, str]) -> Path:
    """A repository whose file was converted as it was checked out, long before the index was written."""
    root = repository(folder, {"a.txt": content})
    for name, value in settings:
        git(root, "config", name, value)
    if attributes:
        write(root, {".gitattributes": attributes})
        git(root, "add", ".gitattributes")
        git(root, "commit", "-q", "-m", "attributes")
    (root / "a.txt").unlink()
    git(root, "reset", "-q", "--hard")
    for path in root.glob("*.*"):
        os.utime(path, (1_000_000_000, 1_000_000_000))
    assert git(root, "status", "--porcelain") == b""
    return root


def files_of(root: Path) -> list[dict[str, Any]]:
    record = take_code_record(root, root.parent / "runs", RUN)
    assert record["reason"] is None
    return list(record["repositories"][0]["files"])


@pytest.mark.parametrize(
    ("attributes", "committed", "on_disk"),
    [
        (b"* text eol=crlf\n", b"a\nb\n", b"a\r\nb\r\n"),
        (b"*.txt ident\n", b"$Id$\n", None),
        (b"*.txt working-tree-encoding=UTF-16LE\n", b"ab\n", b"a\0b\0\n\0"),
        (b"*.txt filter=x\n", b"abc\n", b"nop\n"),
        (b"[attr]lab filter=x\n*.txt lab\n", b"abc\n", b"nop\n"),
    ],
)
def test_bytes_that_a_conversion_has_made_are_kept(
    tmp_path: Path, attributes: bytes, committed: bytes, on_disk: bytes | None
) -> None:
    driver = [("filter.x.clean", ROTATE), ("filter.x.smudge", ROTATE)]
    root = checked_out(tmp_path / "lab", attributes, committed, *driver)
    assert on_disk is None or (root / "a.txt").read_bytes() == on_disk

    assert [(file["path"], file["status"]) for file in files_of(root)] == [("a.txt", "modified")]
    assert_put_back(root)


def test_line_ends_by_a_setting_alone_are_kept(tmp_path: Path) -> None:
    root = checked_out(tmp_path / "lab", b"", b"a\nb\n", ("core.autocrlf", "true"))
    assert (root / "a.txt").read_bytes() == b"a\r\nb\r\n"

    assert [file["path"] for file in files_of(root)] == ["a.txt"]
    assert_put_back(root)


@pytest.mark.parametrize("place", [".git/info/attributes", "own"])
def test_attributes_outside_of_the_tree_count(tmp_path: Path, place: str) -> None:
    root = repository(tmp_path / "lab", {"a.txt": b"a\nb\n"})
    (root / ".git/info").mkdir(exist_ok=True)
    (root / place).write_bytes(b"* text eol=crlf\n")
    git(root, "config", "core.attributesFile", str(root / place))
    (root / "a.txt").unlink()
    git(root, "reset", "-q", "--hard")
    os.utime(root / "a.txt", (1_000_000_000, 1_000_000_000))
    git(root, "status")

    assert "a.txt" in [file["path"] for file in files_of(root)]


def test_attributes_that_are_gone_by_now_count(tmp_path: Path) -> None:
    root = checked_out(tmp_path / "lab", b"* text eol=crlf\n", b"a\nb\n")
    (root / ".gitattributes").unlink()

    assert [file["path"] for file in files_of(root)] == [".gitattributes", "a.txt"]
    assert_put_back(root)


def test_files_that_no_conversion_has_changed_do_not_count_towards_the_limit(tmp_path: Path) -> None:
    root = checked_out(tmp_path / "lab", b"* filter=x\n", b"a" * 900)
    write(root, {"new.py": b"b" * 950})

    (entry,) = take_code_record(root, tmp_path / "runs", RUN, limits=Limits(total=1000))["repositories"]

    assert ([file["path"] for file in entry["files"]], entry["left_out"]) == (["new.py"], [])


def test_a_filter_whose_name_has_a_dot_counts(tmp_path: Path) -> None:
    settings = [("filter.a.b.smudge", ROTATE), ("filter.a.b.clean", ROTATE)]
    root = checked_out(tmp_path / "lab", b"*.txt filter=a.b\n", b"abc\n", *settings)

    assert [file["path"] for file in files_of(root)] == ["a.txt"]
    assert_put_back(root)
