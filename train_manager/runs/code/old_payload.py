"""What records of version 1 keep: a folder with a patch of changed files and an archive of new and large ones."""

from __future__ import annotations

import hashlib
import os
import re
import tarfile
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import Any, Final, final

CODE: Final = "code"
PATCH: Final = "changes.patch"
_ARCHIVE: Final = "files.tar"
_NOT_CHECKED_OUT: Final = "not_checked_out"
_NAME: Final = re.compile(rf"{CODE}/[0-9A-Za-z_-]+")


@final
class OldPayload:
    """The folder of a record; nothing is read if its name leads elsewhere.

    Args:
        train_dir: the folder of the training.
        repository: what the record tells of a repository.
    """

    def __init__(self, train_dir: Path, repository: Mapping[str, Any]) -> None:
        # The name comes from a file that others may have written: only a folder directly in code/ is accepted.
        name = repository.get("payload")
        folder = train_dir / name if isinstance(name, str) and _NAME.fullmatch(name) else None
        self.folder = folder.absolute() if folder is not None and folder.is_dir() else None

    @property
    def patch(self) -> bytes:
        """The differences of small files, as ``git apply`` reads them."""
        return self._read(PATCH)

    @property
    def not_checked_out(self) -> bytes:
        """The names of files that a sparse checkout had left out, each with a zero after it."""
        return self._read(_NOT_CHECKED_OUT)

    def content(self, file: Mapping[str, Any]) -> bytes | None:
        """Return a file of the archive, of a link its target; None if it is not there as the record says."""
        member = self._members.get(file["path"])
        if member is None or self.folder is None:
            return None
        if member.issym():
            content = os.fsencode(member.linkname)
        elif not member.isreg() or member.issparse():  # a small archive can claim a sparse file of any length
            return None
        else:
            with open(self.folder / _ARCHIVE, "rb") as archive:
                # Read at the recorded offset: tarfile would search the archive from its start for each member.
                archive.seek(member.offset_data)
                content = archive.read(member.size)
        return content if hashlib.sha256(content).hexdigest() == file.get("sha256") else None

    def _read(self, name: str) -> bytes:
        try:
            return (self.folder / name).read_bytes() if self.folder is not None else b""
        except OSError:
            return b""

    @cached_property
    def _members(self) -> dict[str, tarfile.TarInfo]:
        if self.folder is None:
            return {}
        try:
            with tarfile.open(self.folder / _ARCHIVE, "r:", encoding="utf-8", errors="surrogateescape") as archive:
                return {member.name: member for member in archive}
        except (tarfile.TarError, OSError, EOFError):
            return {}
