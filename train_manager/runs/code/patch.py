"""The differences of files from the commit, as a patch that ``git apply`` takes, in a section for each file."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from typing import Final

from train_manager.runs.code.changes import Committed
from train_manager.runs.code.clean_room import CleanRoom

_START: Final = re.compile(rb"^diff --git ", re.MULTILINE)  # lines of content begin with another letter
_HUNK: Final = re.compile(rb"^@@ ", re.MULTILINE)
_BLOBS: Final = re.compile(rb"^index ([0-9a-f]+)\.\.([0-9a-f]+)", re.MULTILINE)
_ESCAPED: Final = re.compile(rb'\\([abtnvfr"\\]|[0-7]{3})')
_LETTERS: Final = dict(zip(b'abtnvfr"\\', b'\a\b\t\n\v\f\r"\\', strict=True))
_OPTIONS: Final = (
    *("--patch", "--binary", "--full-index", "--no-renames", "--no-color", "--no-ext-diff", "--no-textconv"),
    *("--unified=3", "--diff-algorithm=myers", "--src-prefix=a/", "--dst-prefix=b/", "--ignore-submodules=all"),
)


def sections(room: CleanRoom, files: Sequence[Committed]) -> dict[str, bytes]:
    """Return the part of the patch for each file; files that do not differ have none.

    Nor have those whose part ``git apply`` would not read, and with it the whole patch.
    """
    if not files:
        return {}
    # An index of these files alone, without their times: git compares each by its content, and looks at nothing else.
    own = {"GIT_INDEX_FILE": os.fspath(room.folder / "index-of-the-patch")}
    entries = b"".join(f"{file.mode} {file.blob}\t".encode() + os.fsencode(file.path) + b"\0" for file in files)
    (room.folder / "index-of-the-patch").unlink(missing_ok=True)
    room.git.run("update-index", "-z", "--index-info", feed=entries, changes=own)
    patch = room.git.run("diff-files", *_OPTIONS, changes=own)
    found: dict[str, bytes] = {}
    unreadable = set()  # its name is only in the first line, where git takes " /" for the start of a second one
    starts = [match.start() for match in _START.finditer(patch)]
    for start, end in zip(starts, [*starts[1:], len(patch)], strict=True):
        section = patch[start:end]
        name = _name(section)
        found[name] = found.get(name, b"") + section  # a file that became a link has two
        if " /" in name and not _HUNK.search(section):
            unreadable.add(name)
    return {name: section for name, section in found.items() if name not in unreadable}


def leads_to(section: bytes, blob: str) -> bool:
    """Return whether a section ends at a content; without an ``index`` line only the mode changes."""
    header = re.split(rb"^(?:@@|GIT binary patch)", section.rpartition(b"\ndiff --git ")[2], maxsplit=1, flags=re.M)[0]
    found = _BLOBS.search(header)
    return found is None or found[2].decode() == blob


def is_binary(section: bytes) -> bool:
    """Return whether a section has compressed contents, the old one too, in place of lines."""
    return re.search(rb"^GIT binary patch$", section, re.MULTILINE) is not None


def removed(section: bytes) -> bytes:
    """Return what a section takes away; what it adds is in the file.

    >>> removed(b"--- a/x\\n+++ b/x\\n@@ -1 +1 @@\\n-old\\n+new\\n")
    b'-- a/x\\nold'
    """
    return b"\n".join(line[1:] for line in section.split(b"\n") if line.startswith(b"-"))


def _name(section: bytes) -> str:
    line = section[len(b"diff --git ") : section.index(b"\n")]
    # The same name twice, as a/name b/name.
    half = line[: (len(line) - 1) // 2]
    if half.startswith(b'"'):
        half = _ESCAPED.sub(_unescaped, half[1:-1])
    return os.fsdecode(half[2:])


def _unescaped(match: re.Match[bytes]) -> bytes:
    text = match[1]
    return bytes([int(text, 8)]) if len(text) == 3 else bytes([_LETTERS[text[0]]])
