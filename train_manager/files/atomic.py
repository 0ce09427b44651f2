"""Files and folders that are there as a whole or not at all, so that no reader sees half of one; and their names."""

from __future__ import annotations

import os
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path

from train_manager.telling.errors import InputError, TrainManagerError


def replace_file(path: Path, content: bytes, *, sync: bool = False) -> None:
    """Write a file such that a reader finds the old or the new content, never half of it.

    Args:
        path: the path of the file; its folder is made if it is missing.
        content: the new content.
        sync: wait until the disk has the content, so that a reader finds it whole after a power failure too.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = temporary_beside(path)
    try:
        with temporary.open("wb") as file:
            file.write(content)
            if sync:
                file.flush()
                os.fsync(file.fileno())
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)  # it is there only after an error


@contextmanager
def new_folder(path: Path, *, error: type[TrainManagerError] = InputError) -> Iterator[Path]:
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

    Args:
        path: of the folder; its parent is made if it is missing.
        error: the class of the error if something has this name.

    Raises:
        InputError: something has this name, before the block or as it ends.
    """
    require_new(path, error=error)
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = temporary_beside(path)
    os.mkdir(temporary)
    try:
        yield temporary
        require_new(path, error=error)  # a rename would replace an empty folder that somebody has made meanwhile
        os.rename(temporary, path)
    except BaseException:  # also after Ctrl-C in the middle of a write: a half-written folder must not stay
        shutil.rmtree(temporary, ignore_errors=True)
        raise


def require_new(path: Path, *, error: type[TrainManagerError] = InputError) -> None:
    """Refuse a folder that is there already.

    Raises:
        InputError: a file, a folder or a link has this name.
    """
    if os.path.lexists(path):
        what = f"{quote_path(path)} is there already, and nothing is overwritten"
        raise error(what, name="folder", cure="give another folder, or move this one away")


def temporary_beside(path: Path) -> Path:
    """Return a hidden name to write under until all is written: ``.tmp-<name>-<random>``."""
    # In the same folder, because a rename is atomic only within one file system. The random end keeps two processes
    # that write the same file apart; the number of a process is the same in each container.
    return path.with_name(f".tmp-{path.name}-{secrets.token_hex(4)}")


def free_path(path: Path) -> Path:
    """Return the path, or the first of ``<path>-2``, ``<path>-3``, ... that is not taken."""
    names = (path if number == 1 else path.with_name(f"{path.name}-{number}") for number in count(1))
    # lexists(): the name of a link that leads to nothing is taken too.
    return next(name for name in names if not os.path.lexists(name))


def quote_path(path: Path) -> str:
    """Return a path for a message: as it is, or quoted if it has a newline or another character that does not print."""
    return str(path) if str(path).isprintable() else repr(str(path))
