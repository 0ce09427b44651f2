"""A ``train_dir`` that is moved out of the way, by a rename: nothing is overwritten and nothing deleted."""

from __future__ import annotations

import os
import sys
from itertools import count
from pathlib import Path

from train_manager.files.atomic import quote_path
from train_manager.files.lock import LOCK_FILE, WriterLock
from train_manager.telling.errors import CheckpointError


def move_away(train_dir: Path) -> Path | None:
    """Move a whole ``train_dir`` beside itself, to ``<train_dir>-before-1`` or the next number that is free.

    >>> import tempfile
    >>> train_dir = Path(tempfile.mkdtemp()) / "digits"
    >>> train_dir.mkdir()
    >>> (train_dir / "notes.txt").touch()
    >>> moved = move_away(train_dir)
    >>> moved.name, (moved / "notes.txt").exists(), [*train_dir.iterdir()]
    ('digits-before-1', True, [])

    All files are moved, since plots, tables and checkpoints of one training belong together. The lock is held
    meanwhile, so the folder of a run that still writes is not moved. If ``train_dir`` is a link, the folder that it
    leads to is moved, and the link stays.

    Args:
        train_dir: the folder; a new, empty one takes its place.

    Returns:
        The folder with the old files; None if there are none.

    Raises:
        CheckpointError: another run writes there, the program itself runs from there, or the system refuses.
    """
    with WriterLock(train_dir):
        old = train_dir.resolve()
        # A folder with only its lock file is empty for the user.
        if not set(os.listdir(old)) - {LOCK_FILE}:
            return None
        # A rename would take the program's relative paths and its own source files away from it.
        _refuse_ground_of_the_program(old, train_dir)
        numbers = (old.with_name(f"{old.name}-before-{number}") for number in count(1))
        away = next(path for path in numbers if not os.path.lexists(path))
        try:
            os.rename(old, away)
        except OSError as error:  # such as a mount point, or a parent folder without permission to write
            raise CheckpointError(
                f"{quote_path(train_dir)} cannot be moved to {quote_path(away)}: {error.strerror}",
                name="train_dir",
                cure="give another train_dir",
            ) from error
        old.mkdir(exist_ok=True)  # another run may have made it, for which the lock of the old one means nothing
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
