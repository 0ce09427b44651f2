"""What records keep in a train_dir: each content once, in a file that is called after its SHA-256."""

from __future__ import annotations

import contextlib
import hashlib
import os
import time
from pathlib import Path
from typing import Final

from train_manager.files.atomic import replace_file
from train_manager.runs.code.reading import LINK, Unreadable, read_now

CODE: Final = "code"
FILES: Final = "files"
_A_DAY: Final = 86_400.0


def keep(train_dir: Path, content: bytes) -> str:
    """Store a content, unless it is there, and return its SHA-256.

    >>> import tempfile
    >>> folder = Path(tempfile.mkdtemp())
    >>> kept(folder, keep(folder, b"warm up longer"), 14)
    b'warm up longer'
    """
    digest = hashlib.sha256(content).hexdigest()
    if not is_kept(train_dir, digest, len(content)):
        replace_file(train_dir / CODE / FILES / digest, content)
    return digest


def is_kept(train_dir: Path, digest: str, size: int) -> bool:
    """Return whether a content is there, by its size: a killed machine may have cut it off."""
    try:
        return (train_dir / CODE / FILES / digest).lstat().st_size == size
    except OSError:
        return False


def kept(train_dir: Path, digest: str, size: int) -> bytes | None:
    """Return a content; None if it is not there, or not what its name says.

    Args:
        train_dir: the folder of the training.
        digest: as a record tells it.
        size: in bytes; a longer file is not read into memory.
    """
    folder = os.path.join(os.path.realpath(train_dir), CODE, FILES)
    if os.path.basename(digest) != digest or os.path.realpath(folder) != folder:
        return None
    try:
        found = read_now(folder, digest, keep=size)
    except Unreadable:
        return None
    return found.content if found is not None and found.mode != LINK and found.sha256 == digest else None


def remove_leftovers(train_dir: Path) -> None:
    """Delete what killed processes have begun to write; what is younger than a day may still be written."""
    for leftover in (train_dir / CODE / FILES).glob(".*"):
        with contextlib.suppress(OSError):
            if time.time() - leftover.lstat().st_mtime > _A_DAY:
                leftover.unlink()
