"""Pointers of git LFS: a few lines in the commit that name a large file by its hash."""

from __future__ import annotations

import hashlib
import re
from pathlib import Path
from typing import Final

from train_manager.runs.code.repository import Repository

SIZES: Final = range(100, 1025)  # bytes of a pointer; git LFS takes nothing longer for one
_POINTER: Final = re.compile(
    rb"version https://(?:git-lfs|hawser)[^\n]*\n(?:ext-[^\n]*\n)*oid sha256:([0-9a-f]{64})\nsize (\d+)\n?"
)


def read_pointer(content: bytes) -> tuple[str, int] | None:
    """Return hash and size that a pointer names; None if the content is not a pointer.

    >>> read_pointer(b"version https://git-lfs.github.com/spec/v1\\noid sha256:" + b"a" * 64 + b"\\nsize 7\\n")[1]
    7
    """
    found = _POINTER.fullmatch(content)
    return (found[1].decode(), int(found[2])) if found else None


def content_of(digest: str, repository: Repository, file: Path) -> Path | None:
    """Return a file with the content that a pointer names; None if it is not on this machine.

    Args:
        digest: the hash in the pointer.
        repository: where LFS may keep it.
        file: the file in the working tree that had it.
    """
    # The cache of LFS first, whose files do not change; then the file itself, which the user may have edited.
    for place in (repository.common_folder / "lfs" / "objects" / digest[:2] / digest[2:4] / digest, file):
        try:
            with open(place, "rb") as opened:
                if hashlib.file_digest(opened, "sha256").hexdigest() == digest:
                    return place
        except OSError:
            continue
    return None
