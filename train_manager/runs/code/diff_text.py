"""How files differ from the commit, as text for people; files are put back from the store, and never from this text."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Final

from train_manager.files.secrets import reason_to_leave_out
from train_manager.runs.code.changes import Committed
from train_manager.runs.code.clean_room import CleanRoom
from train_manager.runs.code.git_commands import GitTrouble
from train_manager.runs.code.patch_text import sections

MOST: Final = 1_000_000  # bytes of a text; the sections of further files are left out
_OPTIONS: Final = (
    *("--patch", "--full-index", "--no-renames", "--no-color", "--no-ext-diff", "--no-textconv", "--unified=3"),
    *("--diff-algorithm=myers", "--src-prefix=a/", "--dst-prefix=b/", "--ignore-submodules=all"),
)


def text_of_differences(room: CleanRoom, files: Mapping[str, tuple[Committed, str]]) -> bytes:
    """Return the differences of files, without the sections of files from which a secret was deleted.

    Args:
        room: of the repository.
        files: by path, each as the commit has it, and what git calls its present content; of a file that is gone,
            zeros.
    """
    if not files:
        return b""
    # An index with these files alone and without their times: git compares each by content, and looks at no other.
    own = {"GIT_INDEX_FILE": os.fspath(room.folder / "index-of-differences")}
    entries = b"".join(
        f"{file.mode} {file.blob}\t".encode() + os.fsencode(path) + b"\0" for path, (file, _) in files.items()
    )
    try:
        room.git.run("update-index", "-z", "--index-info", feed=entries, changes=own)
        text = room.git.run("diff-files", *_OPTIONS, changes=own)
    except GitTrouble:  # a partial clone lacks the old contents, and may not fetch them here
        return b""
    shown, size = [], 0
    for path, lines in sections(text):
        part = b"\n".join(lines).rstrip(b"\n") + b"\n"
        # Added lines were searched for secrets with the file; deleted lines are in no file any more.
        removed = b"\n".join(line[1:] for line in lines if line.startswith(b"-"))
        size += len(part)
        # A file that changed after it was stored is left out: the text would contradict the stored content.
        if size <= MOST and _leads_to(lines, files[path][1]) and reason_to_leave_out(path, removed) is None:
            shown.append(part)
    return b"".join(shown)


def _leads_to(lines: list[bytes], blob: str) -> bool:
    """Return whether a section of a patch ends at a content."""
    # Git writes "index <old>..<new> <mode>"; without this line only the mode has changed.
    index = next((line for line in lines if line.startswith(b"index ")), None)
    return index is None or f"..{blob}".encode() in index
