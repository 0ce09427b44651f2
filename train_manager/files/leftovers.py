"""The deletion of folders, and of what killed processes have left: names of ``temporary_beside``."""

from __future__ import annotations

import os
import re
import shutil
import warnings
from pathlib import Path

from train_manager.files.atomic import quote_path, temporary_beside
from train_manager.telling.source_locations import users_level

_TEMPORARY = re.compile(r"\.tmp-.*-([0-9]+)-[0-9a-f]{6}", flags=re.DOTALL)  # as `temporary_beside` makes it


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


def remove_leftovers(folder: Path) -> None:
    """Remove half-written and half-deleted files and folders, except those that another live process still writes.

    Half-written ones with the id of this process are removed too: in a container each run has the same process id. So
    this process must not be writing to the folder.
    """
    # The list is complete before the first removal, which would change the folder under scandir.
    with os.scandir(folder) as entries:
        found = [entry for entry in entries if _is_leftover(entry)]
    for entry in found:
        _remove(Path(entry.path))


def _is_leftover(entry: os.DirEntry[str]) -> bool:
    temporary = _TEMPORARY.fullmatch(entry.name)
    return temporary is not None and not entry.is_symlink() and not _is_another_live(int(temporary[1]))


def _is_another_live(pid: int) -> bool:
    try:
        os.kill(pid, 0)  # signal 0 sends nothing: it only reports whether the process exists
    except (ProcessLookupError, OverflowError):  # OverflowError: a number that no process has
        return False
    except PermissionError:  # the process exists, and belongs to another user
        return True
    return pid != os.getpid()


def _remove(path: Path) -> None:
    try:
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink()
    except OSError as error:  # such as a file that a reader has open on NFS: a reason to warn, not to end the run
        _warn(path, error)


def _warn(path: Path, error: OSError) -> None:
    what = f"{quote_path(path)} cannot be deleted: {error.strerror}"
    warnings.warn(f"{what}; the next run tries again", RuntimeWarning, stacklevel=users_level())
