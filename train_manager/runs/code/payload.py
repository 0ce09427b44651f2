"""What a code record keeps beside itself: a folder that is called after its content, and appears as a whole."""

from __future__ import annotations

import contextlib
import hashlib
import os
import secrets
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

CODE: Final = "code"
PATCH: Final = "changes.patch"
ARCHIVE: Final = "files.tar"
NOT_CHECKED_OUT: Final = "not_checked_out"
NOTEBOOK: Final = "notebook.py"
_A_DAY: Final = 86_400.0
_NAMES: Final = (PATCH, ARCHIVE, NOT_CHECKED_OUT, NOTEBOOK)


@contextlib.contextmanager
def folder_to_fill(train_dir: Path) -> Iterator[Path]:
    """Give an empty folder beside the place of the payloads; it goes, unless ``put_in_place`` moves it there."""
    (train_dir / CODE).mkdir(parents=True, exist_ok=True)
    _remove_leftovers(train_dir / CODE)
    # The name begins with a dot and never becomes a payload, should this process be killed.
    folder = train_dir / CODE / f".part-{os.getpid()}-{secrets.token_hex(4)}"
    folder.mkdir()
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _remove_leftovers(folder: Path) -> None:
    """Delete what killed processes have left; what is younger may still be filled."""
    for leftover in folder.glob(".part-*"):
        with contextlib.suppress(OSError):
            if time.time() - leftover.stat().st_mtime > _A_DAY:
                shutil.rmtree(leftover, ignore_errors=True)


def put_in_place(folder: Path) -> str | None:
    """Move a filled folder to its place and return its name in the train_dir; None if it is empty."""
    names = [name for name in _NAMES if (folder / name).exists()]
    if not names:
        return None
    place = folder.with_name(_digest(folder, names))
    with contextlib.suppress(OSError):  # there already: the same content
        os.rename(folder, place)
    return f"{CODE}/{place.name}"


def _digest(folder: Path, names: list[str]) -> str:
    content = hashlib.sha256()
    for name in names:
        with open(folder / name, "rb") as file:
            content.update(f"{name} {hashlib.file_digest(file, 'sha256').hexdigest()}\n".encode())
    return content.hexdigest()[:32]
