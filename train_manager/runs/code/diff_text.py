"""How files differ from the commit, as text for people; files are put back from the store, and never from this text."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Final

from train_manager.runs.code.changes import Committed
from train_manager.runs.code.clean_room import CleanRoom
from train_manager.runs.code.git_commands import GitTrouble
from train_manager.runs.code.patch_text import sections
from train_manager.runs.code.secret_files import reason_to_leave_out

MOST: Final = 1_000_000  # bytes of a text
_OPTIONS: Final = (
    *("--patch", "--full-index", "--no-renames", "--no-color", "--no-ext-diff", "--no-textconv", "--unified=3"),
    *("--diff-algorithm=myers", "--src-prefix=a/", "--dst-prefix=b/", "--ignore-submodules=all"),
)


def text_of_differences(room: CleanRoom, files: Mapping[str, tuple[Committed, str]]) -> bytes:
    """Return the differences of files, but for what takes a secret away.

    Args:
        room: of the repository.
        files: by path, each as the commit has it, and what git calls its present content; of a file that is gone,
            zeros.
    """
    if not files:
        return b""
    # An index of these files alone, without their times: git compares each by its content, and looks at nothing else.
    own = {"GIT_INDEX_FILE": os.fspath(room.folder / "index-of-differences")}
    entries = b"".join(
        f"{file.mode} {file.blob}\t".encode() + os.fsencode(path) + b"\0" for path, (file, _) in files.items()
    )
    try:
        room.git.run("update-index", "-z", "--index-info", feed=entries, changes=own)
        text = room.git.run("diff-files", *_OPTIONS, changes=own)
    except GitTrouble:  # of a partial clone, that lacks the old contents
        return b""
    shown, size = [], 0
    for path, lines in sections(text):
        part = b"\n".join(lines).rstrip(b"\n") + b"\n"
        removed = b"\n".join(line[1:] for line in lines if line.startswith(b"-"))  # what it adds is in the file
        size += len(part)
        if size <= MOST and _leads_to(lines, files[path][1]) and reason_to_leave_out(path, removed) is None:
            shown.append(part)
    return b"".join(shown)


def _leads_to(lines: list[bytes], blob: str) -> bool:
    """Return whether a part ends at a content; without an ``index`` line only the mode changes."""
    index = next((line for line in lines if line.startswith(b"index ")), None)
    return index is None or f"..{blob}".encode() in index
