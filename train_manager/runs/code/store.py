"""What records keep in a train_dir: each content once, in a file that is called after its SHA-256."""

from __future__ import annotations

import contextlib
import hashlib
import os
import stat
import time
from pathlib import Path
from typing import Final, final

from train_manager.files.atomic import replace_file
from train_manager.runs.code.reading import LINK, Unreadable, read_now

CODE: Final = "code"
FILES: Final = "files"
NEIGHBOURS: Final = 4  # train_dirs beside this one that are searched, the newest first
_A_DAY: Final = 86_400.0


@final
class Store:
    """The contents of a train_dir; a neighbour's file is linked, so that many runs take the room of one.

    >>> import tempfile
    >>> folder = Path(tempfile.mkdtemp())
    >>> read_stored(folder, Store(folder).keep(b"warm up longer"), 14)
    b'warm up longer'

    A neighbour is a train_dir in the same folder. A hard link is a file like any other: a copied folder is whole.

    Args:
        train_dir: the folder of the training.
    """

    def __init__(self, train_dir: Path) -> None:
        self._folder = train_dir.absolute() / CODE / FILES
        beside = self._folder.parents[2].glob(f"*/{CODE}/{FILES}")
        self._folders = [self._folder, *sorted(beside, key=_time, reverse=True)[:NEIGHBOURS]]

    def has(self, digest: str, size: int) -> bool:
        """Return whether a content is there, or at a neighbour, by its size: a killed machine may have cut it off."""
        return any(_size(folder / digest) == size for folder in self._folders)

    def keep(self, content: bytes) -> str:
        """Store a content, unless it is there, and return its SHA-256."""
        digest = hashlib.sha256(content).hexdigest()
        place = self._folder / digest
        # A file of another size is the rest of a crash: it is replaced.
        if _size(place) != len(content) and not any(_link(other / digest, place, content) for other in self._folders):
            replace_file(place, content)
        return digest


def _time(folder: Path) -> float:
    with contextlib.suppress(OSError):
        return folder.stat().st_mtime
    return 0.0


def _size(file: Path) -> int:
    with contextlib.suppress(OSError):
        return file.lstat().st_size
    return -1


def _link(other: Path, place: Path, content: bytes) -> bool:
    """Link a file of this user that has a content to another place, if the file system can do so."""
    try:
        found = other.lstat()
        if (stat.S_ISREG(found.st_mode), found.st_uid, found.st_size) != (True, os.geteuid(), len(content)):
            return False
        # The neighbour's file may be damaged: its name is not trusted.
        if other.read_bytes() != content:
            return False
        place.parent.mkdir(parents=True, exist_ok=True)
        os.link(other, place)
    except (OSError, AttributeError):  # the file system has no hard links, or the system no os.geteuid
        return False
    return True


def read_stored(train_dir: Path, digest: str, size: int) -> bytes | None:
    """Return a content; None if it is not there, or does not have the hash in its name.

    Args:
        train_dir: the folder of the training.
        digest: its SHA-256, from a record.
        size: in bytes; a longer file is not read into memory.
    """
    folder = os.path.join(os.path.realpath(train_dir), CODE, FILES)
    # The record may be forged: neither its digest nor a link in place of the folder may lead elsewhere.
    if os.path.basename(digest) != digest or os.path.realpath(folder) != folder:
        return None
    try:
        found = read_now(folder, digest, keep=size)
    except Unreadable:
        return None
    return found.content if found is not None and found.mode != LINK and found.sha256 == digest else None


def remove_leftovers(train_dir: Path) -> None:
    """Delete the temporary files of killed processes; a file younger than a day may still be written."""
    for leftover in (train_dir / CODE / FILES).glob(".*"):
        with contextlib.suppress(OSError):
            if time.time() - leftover.lstat().st_mtime > _A_DAY:
                leftover.unlink()
