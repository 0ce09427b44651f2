"""Files that are replaced as a whole, so that no reader sees a part of one."""

from __future__ import annotations

import os
from pathlib import Path


def replace_file(path: Path, content: bytes) -> None:
    """Write a file such that a reader finds the old or the new content, never a part of it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    # In the same folder, because os.replace is atomic only within one file system.
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        temporary.write_bytes(content)
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)
