"""Files and links written below a folder, such that nothing is written outside of it."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from train_manager.runs.code.reading import LINK, PROGRAM


def put_file(root: Path, path: str, mode: str, content: bytes) -> str | None:
    """Write a file or a link below a folder, over an old one; return why that is impossible, or None.

    It is never written through a link: a folder on its way that is a link is a reason. Where a link itself points to
    is not judged: data often lies elsewhere.

    Args:
        root: the folder.
        path: the name in it.
        mode: as git writes it.
        content: of a link, its target.
    """
    if reason := reason_against(path):
        return reason
    place = root
    for part in path.split("/")[:-1]:
        place = place / part
        if place.is_symlink():
            return f"{place.relative_to(root)} is a link, and nothing is written through links"
        try:
            place.mkdir(exist_ok=True)
        except FileExistsError:
            return f"{place.relative_to(root)} is a file where a folder is needed"
    return _write(root / path, mode, content)


def reason_against(path: str) -> str | None:
    """Return why a name may not be written below a folder, or None if it may.

    >>> reason_against("../elsewhere")
    'its name leads out of the folder'
    """
    parts = path.split("/")
    if not path or "\0" in path or any(part in ("", ".", "..") for part in parts):
        return "its name leads out of the folder"
    # File systems of macOS and Windows take ".GIT" and ".git. " for .git, whose hooks and settings git would obey.
    if any(part.casefold().rstrip(". ") == ".git" for part in parts):
        return "its name leads into a git folder"
    return None


def _write(place: Path, mode: str, content: bytes) -> str | None:
    if place.is_dir() and not place.is_symlink():
        # A folder that deletions have left empty makes room for the file; rmdir fails if anything is in it.
        with contextlib.suppress(OSError):
            place.rmdir()
        if place.is_dir():
            return "a folder is in its place"
    # The old file is deleted, not overwritten: it may be a link, or a hard link whose other name must keep its content.
    place.unlink(missing_ok=True)
    if mode == LINK:
        os.symlink(os.fsdecode(content), place)
        return None
    rights = 0o777 if mode == PROGRAM else 0o666  # the user's umask takes bits away, as with git
    # O_EXCL and O_NOFOLLOW: a link that another process puts here after the unlink is not followed.
    descriptor = os.open(place, os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_NOFOLLOW", 0), rights)
    with open(descriptor, "wb") as opened:
        opened.write(content)
    return None
