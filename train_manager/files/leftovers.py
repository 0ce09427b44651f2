"""The deletion of folders, and of what killed processes have left half-written or half-deleted."""

from __future__ import annotations

import glob
import os
import shutil
import time
import warnings
from pathlib import Path
from typing import Final

from train_manager.files.atomic import quote_path, temporary_beside
from train_manager.telling.source_locations import users_level

A_DAY: Final = 86_400.0  # seconds
_TEMPORARY: Final = f".tmp-*-{'[0-9a-f]' * 8}"  # as `temporary_beside` makes it


def delete(path: Path) -> None:
    """Delete a folder; it is renamed first, so that no reader finds some of its files under its name."""
    deleted = temporary_beside(path)
    try:
        os.rename(path, deleted)
    except FileNotFoundError:
        return  # another process has deleted it
    except OSError as error:
        _warn(path, error)
    else:
        _remove(deleted)


def remove_leftovers(folder: Path, names: str = _TEMPORARY, *, after: float = 0.0) -> None:
    """Remove the files and folders of a folder that killed processes have left.

    Args:
        folder: the folder; it may be missing.
        names: a pattern of their names; by default those of ``temporary_beside``.
        after: the seconds without a change after which no process writes to a leftover any more. 0 is for a folder to
            which no other process can write, because this one holds the WriterLock.
    """
    # The list is complete before the first removal, which would change the folder while it is read.
    for path in [path for path in folder.glob(names) if not path.is_symlink()]:
        if not after or _is_older(path, after):
            _remove(path)


def remove_leftovers_of(path: Path) -> None:
    """Remove what killed processes have left of a file or a folder of this name, which they had not written in full."""
    remove_leftovers(path.parent, _TEMPORARY.replace("*", glob.escape(path.name)))


def _is_older(path: Path, seconds: float) -> bool:
    try:
        return time.time() - path.lstat().st_mtime > seconds
    except FileNotFoundError:  # another process has removed it
        return False


def _remove(path: Path) -> None:
    try:
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink()
    except FileNotFoundError:
        return  # another process removes it
    except OSError as error:  # such as a file that a reader has open on NFS: a reason to warn, not to end the run
        _warn(path, error)


def _warn(path: Path, error: OSError) -> None:
    what = f"{quote_path(path)} cannot be deleted: {error.strerror}"
    warnings.warn(f"{what}; the next run tries again", RuntimeWarning, stacklevel=users_level())
