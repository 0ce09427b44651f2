"""Folders that are there as a whole or not at all."""

from __future__ import annotations

import os
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from train_manager.files.atomic import quote_path
from train_manager.telling.errors import InputError


def require_new(path: Path) -> None:
    """Refuse a folder that is there already.

    Raises:
        InputError: a file, a folder or a link has this name.
    """
    if os.path.lexists(path):
        what = f"{quote_path(path)} is there already, and nothing is overwritten"
        raise InputError(what, name="folder", cure="give another folder, or move this one away")


@contextmanager
def new_folder(path: Path) -> Iterator[Path]:
    """Yield a folder to write to, which gets its name as the ``with`` block ends, and is deleted after an error.

    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "digits"
    >>> with new_folder(path) as folder:
    ...     _ = (folder / "report.md").write_text("written in full")
    ...     path.exists()
    False
    >>> [file.name for file in path.iterdir()]
    ['report.md']

    A process that is killed in the block leaves a hidden folder beside the path, and none of this name.

    Raises:
        InputError: something has this name, before the block or as it ends.
    """
    require_new(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    # Beside its place, because a rename is atomic only within one file system.
    temporary = path.with_name(f".{path.name}.{os.getpid()}-{secrets.token_hex(4)}")
    temporary.mkdir()
    try:
        yield temporary
        require_new(path)  # a rename would replace an empty folder that somebody has made meanwhile
        os.rename(temporary, path)
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        raise
