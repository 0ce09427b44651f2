"""The files of a checkpoint: written, synced, hashed and opened, with errors that say which operation failed where.

Every call to the disk goes through the few functions here, so that a test can let each of them fail.
"""

from __future__ import annotations

import errno
import hashlib
import os
import re
import stat
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from io import BufferedReader
from pathlib import Path

from train_manager.telling.errors import CheckpointError


class Gone(CheckpointError):
    """There is no checkpoint at a path; perhaps a run has deleted it since the path was listed."""


def write_file(path: Path, content: Sequence[bytes | memoryview]) -> None:
    """Write a new file, whose name must not be taken.

    Args:
        path: of the file.
        content: its bytes, in parts.
    """
    with translate_os_errors("write", path):
        # O_EXCL: a file or a link of that name is never written to. O_CLOEXEC: a child does not keep the file open.
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
        try:
            for part in content:
                rest = memoryview(part)
                while rest:
                    rest = rest[os.write(descriptor, rest) :]  # Linux writes 2 GB per call at most, or fewer
        finally:
            os.close(descriptor)


def sync_file(path: Path) -> None:
    """Wait until the disk has the bytes of a file."""
    with open_file(path) as file, translate_os_errors("sync", path):
        os.fsync(file.fileno())


def sync_folder(folder: Path) -> None:
    """Wait until the disk has the names in a folder."""
    with translate_os_errors("sync", folder):
        # A file that is synced can still be lost if its name in the folder is not.
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        except OSError as error:
            # Some network file systems answer EINVAL because they cannot sync folders.
            if error.errno != errno.EINVAL:
                raise
        finally:
            os.close(descriptor)


@contextmanager
def open_file(path: Path, *, follow: bool = False) -> Iterator[BufferedReader]:
    """Open a file to read it: a link or a pipe in the place of a file is refused.

    Args:
        path: the file.
        follow: whether a link is followed.
    """
    # Without O_NONBLOCK the open of a pipe would wait for a writer for ever; it changes nothing for a file.
    flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | (0 if follow else os.O_NOFOLLOW)
    try:
        descriptor = os.open(path, flags)
    except OSError as error:
        # With O_NOFOLLOW, ELOOP means that the path itself is a link.
        link = error.errno == errno.ELOOP
        reason = "is a link, which a checkpoint never has" if link else f"cannot be read: {error.strerror}"
        # A missing file is damage. A missing permission or a lost network may be temporary: with the error of the
        # system as its cause, `is_damage` answers False, and the checkpoint stays.
        cause = None if error.errno in (errno.ELOOP, errno.ENOENT) else error
        raise CheckpointError(f"{path} {reason}", name=path.name) from cause
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise CheckpointError(f"{path} is not a file", name=path.name)
    with os.fdopen(descriptor, "rb") as file, translate_os_errors("read", path):
        yield file


def hash_of(path: Path) -> str:
    """Return the SHA-256 of a file."""
    with open_file(path) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def hash_of_content(content: Sequence[bytes | memoryview]) -> str:
    """Return the SHA-256 of a file with this content, in parts."""
    digest = hashlib.sha256()
    for part in content:
        digest.update(part)
    return digest.hexdigest()


def no_tensors_error(path: Path, error: Exception) -> CheckpointError:
    """Return the error about a file that the library safetensors, with an error of its own, does not read."""
    reason = re.sub(r"^Error while deserializing( header)?: ", "", str(error))
    what = f"{path} is damaged: it is not a safetensors file, or is cut off ({reason:.200})"
    return CheckpointError(what, name=path.name)


@contextmanager
def translate_os_errors(what: str, path: Path) -> Iterator[None]:
    """Replace an OSError by a CheckpointError that names the operation and the path."""
    try:
        yield
    except OSError as error:
        raise CheckpointError(f"{what} failed at {path}: {error.strerror}", name=str(path)) from error
