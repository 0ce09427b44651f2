from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from train_manager.runs.code.patch_text import Hunk, apply_hunks, hunks_by_path, lines_of, shown_base


def patch_of(folder: Path, before: bytes, after: bytes, name: str = "f") -> bytes:
    """The patch that git writes for a file."""
    for side, content in (("a", before), ("b", after)):
        (folder / side).mkdir(parents=True)
        (folder / side / name).write_bytes(content)
    command = ["git", "diff", "--no-index", "--full-index", "--binary", f"a/{name}", f"b/{name}"]
    patch = subprocess.run(command, cwd=folder, capture_output=True, check=False).stdout
    return patch.replace(b"a/a/", b"a/").replace(b"b/b/", b"b/")  # of one file in a commit


NUMBERS = b"".join(b"%d\n" % number for number in range(30))
TEXTS = {
    "a line in the middle": (
        b"".join(b"%d\n" % n for n in range(30)),
        b"".join(b"%d\n" % (n * (n != 15)) for n in range(30)),
    ),
    "two places": (b"".join(b"%d\n" % n for n in range(30)), b"new\n" + b"".join(b"%d\n" % n for n in range(28))),
    "lines that look like a patch": (b"-- a\n++ b\n@@ c\n", b"-- a\n--- x\n++ b\n+++ y\n"),
    "no newline at the end before": (b"a\nb", b"a\nb\n"),
    "no newline at the end afterwards": (b"a\nb\n", b"a\nb"),
    "no newline at both ends": (b"a\nb", b"a\nc"),
    "carriage returns": (b"a\r\nb\rc\r\n", b"a\r\nb\rd\r\n"),
    "all lines go": (b"a\nb\n", b""),
    "all lines are new": (b"", b"a\nb\n"),
}


@pytest.mark.parametrize("case", TEXTS)
def test_a_patch_is_applied_as_git_means_it(case: str, tmp_path: Path) -> None:
    before, after = TEXTS[case]

    hunks = hunks_by_path(patch_of(tmp_path, before, after))["f"]
    assert hunks is not None

    assert apply_hunks(lines_of(before), hunks) == lines_of(after)


def test_the_lines_that_a_patch_shows_suffice_to_apply_it(tmp_path: Path) -> None:
    before, after = TEXTS["a line in the middle"]
    hunks = hunks_by_path(patch_of(tmp_path, before, after))["f"]
    assert hunks is not None

    base = shown_base(hunks)

    assert base[:13] == [*range(12), b"12\n"]
    assert apply_hunks(base, hunks) == [*range(12), *lines_of(after)[12:19]]


@pytest.mark.parametrize("name", ["with space", "naïve", 'a"quote', "tab\there", "back\\slash"])
def test_the_path_of_a_file_is_read_as_git_quotes_it(name: str, tmp_path: Path) -> None:
    assert [*hunks_by_path(patch_of(tmp_path, b"a\n", b"b\n", name))] == [name]


def test_a_binary_file_has_no_lines(tmp_path: Path) -> None:
    patch = patch_of(tmp_path / "1", b"\0a", b"\0b") + patch_of(tmp_path / "2", b"a\n", b"b\n", "text")

    assert hunks_by_path(patch) == {"f": None, "text": [Hunk(0, [b"a\n"], [b"b\n"])]}
