"""Files that are replaced as a whole, so that no reader sees half of one; and paths in messages."""

from __future__ import annotations

import os
import secrets
from pathlib import Path


def replace_file(path: Path, content: bytes, *, sync: bool = False) -> None:
    """Write a file such that a reader finds the old or the new content, never half of it.

    Args:
        path: the path of the file; its folder is made if it is missing.
        content: the new content.
        sync: wait until the disk has the content, so that a reader finds it whole after a power failure too.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    # In the same folder, because os.replace is atomic only within one file system. The random end keeps two threads
    # that write the same file apart.
    temporary = path.with_name(f".{path.name}.{os.getpid()}-{secrets.token_hex(4)}")
    try:
        with temporary.open("wb") as file:
            file.write(content)
            if sync:
                file.flush()
                os.fsync(file.fileno())
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)  # it is there only after an error


def quote_path(path: Path) -> str:
    """Return a path for a message: as it is, or quoted if it has a newline or another character that does not print."""
    return str(path) if str(path).isprintable() else repr(str(path))
