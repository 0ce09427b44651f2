"""Folders that are moved out of the way, by a rename and to a free name: nothing is overwritten and nothing deleted."""

from __future__ import annotations

import os
import sys
from itertools import count
from pathlib import Path

from train_manager.files.atomic import quote_path
from train_manager.files.lock import LOCK_FILE, WriterLock
from train_manager.telling.errors import CheckpointError


def free_path(path: Path) -> Path:
    """Return the path, or the first of ``<path>-2``, ``<path>-3``, ... that is not taken."""
    names = (path if number == 1 else path.with_name(f"{path.name}-{number}") for number in count(1))
    # lexists(): the name of a link that leads to nothing is taken too.
    return next(name for name in names if not os.path.lexists(name))


def move(path: Path, target: Path) -> Path:
    """Rename a folder to a target, or to the first free name like it, and return that."""
    target.parent.mkdir(parents=True, exist_ok=True)
    target = free_path(target)
    os.rename(path, target)
    return target


def move_away(lock: WriterLock) -> Path | None:
    """Move a whole ``train_dir`` beside itself, to ``<train_dir>-before-1`` or the next number that is free.

    >>> import tempfile
    >>> train_dir = Path(tempfile.mkdtemp()) / "digits"
    >>> train_dir.mkdir()
    >>> (train_dir / "notes.txt").touch()
    >>> with WriterLock(train_dir) as lock:
    ...     moved = move_away(lock)
    >>> moved.name, (moved / "notes.txt").exists(), (train_dir / "notes.txt").exists()
    ('digits-before-1', True, False)

    All files are moved, since plots, tables and checkpoints of one training belong together. The lock is held
    meanwhile, so the folder of a run that still writes is not moved; then the lock holds for the new, empty folder. If
    ``train_dir`` is a link, the folder that it leads to is moved, and the link stays.

    Args:
        lock: the lock of the folder; taken here if it is not held.

    Returns:
        The folder with the old files; None if there are none.

    Raises:
        CheckpointError: another run writes there, the program itself runs from there, or the system refuses.
    """
    with lock:
        old = lock.train_dir.resolve()
        # A folder with only its lock file is empty for the user.
        if not set(os.listdir(old)) - {LOCK_FILE}:
            return None
        # A rename would take the program's relative paths and its own source files away from it.
        _refuse_ground_of_the_program(old, lock.train_dir)
        numbers = (old.with_name(f"{old.name}-before-{number}") for number in count(1))
        away = next(path for path in numbers if not os.path.lexists(path))
        try:
            os.rename(old, away)
        except OSError as error:  # such as a mount point, or a parent folder without permission to write
            raise CheckpointError(
                f"{quote_path(lock.train_dir)} cannot be moved to {quote_path(away)}: {error.strerror}",
                name="train_dir",
                cure="give another train_dir",
            ) from error
        # The lock file has moved with the folder, so the new folder gets a lock of its own.
        lock.take_again()
        return away


def _refuse_ground_of_the_program(folder: Path, train_dir: Path) -> None:
    # An interactive session has no __file__.
    script = getattr(sys.modules.get("__main__"), "__file__", None)
    places = {"the working folder": Path.cwd(), "the running program": Path(script or Path.cwd()).resolve()}
    for what, place in places.items():
        if place.is_relative_to(folder):
            raise CheckpointError(
                f"{quote_path(train_dir)} cannot be moved away, because {what} is in it",
                name="train_dir",
                cure="give a train_dir of its own, such as 'runs/1'",
            )
