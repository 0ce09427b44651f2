"""A patch as git writes it, read as lines: the lines of a file that it deletes, and the lines that it adds.

Nothing is restored from it: a comparison shows the lines that differ also where git, or the commit that a patch stands
on, is not there any more.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Final, final

Line = bytes | int
"""A line of a file; a number stands for a line that no patch shows, at that place of the commit's file."""

_BEGIN: Final = b"diff --git "
_HUNK: Final = re.compile(rb"@@ -(\d+)(?:,(\d+))? \+(\d+)(?:,(\d+))? @@")
_LINE_END: Final = re.compile(rb"(?<=\n)")
_ESCAPED: Final = re.compile(rb"\\([0-7]{3}|.)")
# Which side of a hunk a line of the patch belongs to, by its first character.
_SIDES: Final = {b" ": ("old", "new"), b"-": ("old",), b"+": ("new",)}
# The escapes that git writes in quoted paths, as in C.
_LETTERS: Final = {b"a": b"\a", b"b": b"\b", b"f": b"\f", b"n": b"\n", b"r": b"\r", b"t": b"\t", b"v": b"\v"}


@final
@dataclass
class Hunk:
    """Lines of a file that a patch replaces, and the lines that replace them."""

    begins: int  # number of lines of the old file before it
    old: list[bytes] = field(default_factory=list)  # lines of the old file, with the unchanged lines around them
    new: list[bytes] = field(default_factory=list)  # lines of the new file, with the unchanged lines around them


def hunks_by_path(patch: bytes) -> dict[str, list[Hunk] | None]:
    """Return the hunks of each file of a patch; of a binary file None.

    >>> text = b"diff --git a/f b/f\\n--- a/f\\n+++ b/f\\n@@ -1,2 +1,2 @@\\n import os\\n-lr = 0.1\\n+lr = 0.2\\n"
    >>> hunks_by_path(text)
    {'f': [Hunk(begins=0, old=[b'import os\\n', b'lr = 0.1\\n'], new=[b'import os\\n', b'lr = 0.2\\n'])]}
    """
    found: dict[str, list[Hunk] | None] = {}
    for path, lines in sections(patch):
        found[path] = None if path in found else _hunks_of(lines)  # None: a file that became a link has two sections
    return found


def sections(patch: bytes) -> Iterator[tuple[str, list[bytes]]]:
    """Yield the path of each part of a patch, and its lines."""
    lines = patch.split(b"\n")
    starts = [number for number, line in enumerate(lines) if line.startswith(_BEGIN)]
    for start, end in pairwise([*starts, len(lines)]):
        yield _path(lines[start]), lines[start:end]


def apply_hunks(base: Sequence[Line], hunks: Iterable[Hunk]) -> list[Line]:
    """Return the lines of a file with the changes of a patch.

    >>> apply_hunks([b"a", 2, 3, b"d"], [Hunk(begins=1, old=[b"x", b"y"], new=[b"z"])])
    [b'a', b'z', b'd']
    """
    result: list[Line] = []
    done = 0
    for hunk in hunks:
        result += [*base[done : hunk.begins], *hunk.new]
        done = hunk.begins + len(hunk.old)
    return [*result, *base[done:]]


def shown_base(*patches: Sequence[Hunk]) -> list[Line]:
    """Return as much of the commit's file as patches show; the lines in between are numbers.

    >>> shown_base([Hunk(begins=1, old=[b"x"])], [Hunk(begins=3, old=[b"y"])])
    [0, b'x', 2, b'y']
    """
    # Old lines only, by their number in the commit's file: both patches show the same content there.
    known: Mapping[int, bytes] = {
        hunk.begins + number: line for hunks in patches for hunk in hunks for number, line in enumerate(hunk.old)
    }
    return [known.get(number, number) for number in range(max(known, default=-1) + 1)]


def lines_of(content: bytes) -> list[bytes]:
    r"""Return lines with their ends, as git counts them; ``bytes.splitlines`` ends them at a bare CR too.

    >>> lines_of(b"a\r\nb\rc\nd")
    [b'a\r\n', b'b\rc\n', b'd']
    """
    return [line for line in _LINE_END.split(content) if line]


def _hunks_of(lines: Sequence[bytes]) -> list[Hunk] | None:
    """Return the hunks of one file's part of a patch; None if it is binary."""
    first = next((number for number, line in enumerate(lines) if line.startswith(b"@@ ")), len(lines))
    is_binary = any(line.startswith((b"GIT binary patch", b"Binary files ")) for line in lines[:first])
    return None if is_binary else list(_hunks(lines[first:]))


def _hunks(lines: Sequence[bytes]) -> Iterator[Hunk]:
    hunk: Hunk | None = None
    sides: list[list[bytes]] = []  # the sides of the hunk that the line before was added to
    for line in lines:
        if match := _HUNK.match(line):
            if hunk is not None:
                yield hunk
            hunk = Hunk(int(match[1]) - (match[2] != b"0"))  # "-5,0": no old lines, and 5 is the line before
        elif hunk is not None and line[:1] in _SIDES:
            sides = [getattr(hunk, side) for side in _SIDES[line[:1]]]
            for side in sides:
                side.append(line[1:] + b"\n")
        elif line.startswith(b"\\"):  # "\ No newline at end of file" is about the line before it
            for side in sides:
                side[-1] = side[-1].removesuffix(b"\n")
    if hunk is not None:
        yield hunk


def _path(line: bytes) -> str:
    """Return the path in a line ``diff --git a/path b/path``."""
    # Without renames both halves are equal, so the path may hold spaces.
    names = line.removeprefix(_BEGIN)
    name = names[: len(names) // 2]
    if name.startswith(b'"'):
        name = _ESCAPED.sub(_unescape, name[1:-1])
    return name[2:].decode(errors="surrogateescape")


def _unescape(match: re.Match[bytes]) -> bytes:
    escaped = match[1]
    return bytes([int(escaped, 8)]) if len(escaped) == 3 else _LETTERS.get(escaped, escaped)
