"""What a file of a working tree is at this moment: read once, never through a link, never a pipe that would not end."""

from __future__ import annotations

import hashlib
import os
import stat
from dataclasses import dataclass
from typing import BinaryIO, Final, final

# The modes of git; of the permission bits it keeps only whether the owner may execute the file.
LINK: Final = "120000"
PROGRAM: Final = "100755"
FILE: Final = "100644"
_PIECE: Final = 1 << 20


@final
@dataclass(frozen=True)
class FileNow:
    """A file or a link, as one reading has found it."""

    mode: str  # LINK, PROGRAM or FILE
    size: int  # bytes of the content
    sha256: str  # hash of the content; the content of a link is its target
    blob: str  # git's hash of the content, which git computes with a header before it
    content: bytes | None  # None if it is longer than the reader asked for


class Unreadable(Exception):
    """A file is there and cannot be read; the text says why."""


def read_now(root: str, path: str, *, keep: int, object_format: str = "sha1") -> FileNow | None:
    """Return mode, hash and content of a file as it is now; None if it is not there, or is a folder.

    Args:
        root: the folder of the working tree.
        path: the name in it.
        keep: the content is returned up to this size.
        object_format: the hash that git uses there.

    Raises:
        Unreadable: it is there and cannot be read.
    """
    full = os.path.join(root, path)
    try:
        found = os.lstat(full)
        if stat.S_ISDIR(found.st_mode):
            return None
        if stat.S_ISLNK(found.st_mode):
            return _of_bytes(os.fsencode(os.readlink(full)), LINK, object_format)
        if not stat.S_ISREG(found.st_mode):
            raise Unreadable("it is a pipe, a socket or a device")
        # O_NONBLOCK: the file may have become a pipe since lstat, and opening a pipe waits for its writer.
        flags = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
        with open(os.open(full, flags), "rb") as file:
            return _of_file(file, keep, object_format)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise Unreadable(f"it cannot be read: {error.strerror}") from None


def size_now(root: str, path: str) -> int:
    """Return the size of a file, or 0 if it is not there."""
    try:
        return os.lstat(os.path.join(root, path)).st_size
    except OSError:
        return 0


def _of_file(file: BinaryIO, keep: int, object_format: str) -> FileNow:
    found = os.fstat(file.fileno())
    mode = PROGRAM if found.st_mode & stat.S_IXUSR else FILE
    if found.st_size <= keep:
        return _of_bytes(file.read(), mode, object_format)
    # A large file is hashed piece by piece, and not held in memory.
    content, blob = hashlib.sha256(), hashlib.new(object_format, b"blob %d\0" % found.st_size)
    size = 0
    while piece := file.read(_PIECE):
        content.update(piece)
        blob.update(piece)
        size += len(piece)
    return FileNow(mode, size, content.hexdigest(), blob.hexdigest(), None)


def _of_bytes(content: bytes, mode: str, object_format: str) -> FileNow:
    blob = hashlib.new(object_format, b"blob %d\0" % len(content) + content).hexdigest()
    return FileNow(mode, len(content), hashlib.sha256(content).hexdigest(), blob, content)
