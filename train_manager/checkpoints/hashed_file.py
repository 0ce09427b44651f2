"""A file of a checkpoint: it is hashed while it is written, and its errors say what failed where.

All that is asked of the disk goes through the few functions here, so that a test can let each of them fail.
"""

from __future__ import annotations

import errno
import hashlib
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from io import BufferedReader
from pathlib import Path
from typing import final

from train_manager.checkpoints.hash_beside import HashBeside
from train_manager.telling.errors import CheckpointError

FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


class Unreadable(CheckpointError):
    """Files cannot be read here and now, which does not mean that they are damaged."""


class Gone(CheckpointError):
    """There is no checkpoint at a place; perhaps a run has deleted it since somebody has seen it there."""


@final
class HashedFile:
    """A new file that is hashed while it is written.

    >>> from tempfile import mkdtemp
    >>> with HashedFile(Path(mkdtemp(), "file")) as file:
    ...     file.write(b"abc")
    >>> file.size, file.sha256[:8]
    (3, 'ba7816bf')

    Args:
        path: where it is written; it must not be there yet.

    Attributes:
        size: how many bytes were written.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.size = 0
        self._hash = HashBeside()

    def __enter__(self) -> HashedFile:
        with told("write", self.path):
            self._descriptor = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
        return self

    def __exit__(self, kind: type[BaseException] | None, *error: object) -> None:
        self._hash.close(is_wanted=kind is None)
        with told("write", self.path):
            os.close(self._descriptor)

    @property
    def sha256(self) -> str:
        """The SHA-256 of what was written, which may not have changed in memory since."""
        return self._hash.hexdigest()

    def write(self, content: bytes | memoryview) -> None:
        """Write all of it, from its own memory."""
        rest = memoryview(content).cast("B")
        self._hash.update(rest)
        self.size += len(rest)
        with told("write", self.path):
            while rest:
                rest = rest[os.write(self._descriptor, rest) :]  # a system call takes 2 GB at most

    def sync(self) -> None:
        """Wait until the disk has it."""
        with told("sync", self.path):
            os.fsync(self._descriptor)


def sync_folder(folder: Path) -> None:
    """Wait until the disk has the names in a folder."""
    with told("sync", folder):
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        except OSError as error:
            if error.errno != errno.EINVAL:  # a network file system that syncs no folders says so
                raise
        finally:
            os.close(descriptor)


@contextmanager
def opened(path: Path, *, follow: bool = False) -> Iterator[BufferedReader]:
    """Open a file to read it: a link or a pipe in the place of a file is refused.

    Args:
        path: the file.
        follow: whether a link is followed.
    """
    # A pipe would wait for its writer, without O_NONBLOCK; for a file it means nothing.
    flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | (0 if follow else os.O_NOFOLLOW)
    try:
        descriptor = os.open(path, flags)
    except OSError as error:
        link = error.errno == errno.ELOOP
        reason = "is a link, which a checkpoint never has" if link else f"cannot be read: {error.strerror}"
        kind = CheckpointError if error.errno in (errno.ELOOP, errno.ENOENT) else Unreadable
        raise kind(f"{path} {reason}", name=path.name) from None
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise CheckpointError(f"{path} is not a file", name=path.name)
    with os.fdopen(descriptor, "rb") as file, told("read", path):
        yield file


def hash_of(path: Path) -> str:
    """Return the SHA-256 of a file."""
    with opened(path) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def is_full(error: BaseException) -> bool:
    """Return whether an error says that the disk, a quota or a limit leaves no room."""
    return isinstance(error.__cause__, OSError) and error.__cause__.errno in FULL


@contextmanager
def told(what: str, path: Path) -> Iterator[None]:
    """Let an error of the system say what failed, and where."""
    try:
        yield
    except OSError as error:
        kind = Unreadable if what == "read" else CheckpointError
        raise kind(f"{what} failed at {path}: {error.strerror}", name=str(path)) from error
