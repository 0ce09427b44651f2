"""How checkpoints are deleted, and what a killed process leaves behind: ``.tmp-<name>-<pid>`` and ``.del-<name>``."""

from __future__ import annotations

import os
import re
import shutil
import warnings
from pathlib import Path

from train_manager.files.atomic import shown_path
from train_manager.files.moves import free_path
from train_manager.telling.source_locations import users_level

_TEMPORARY = re.compile(r"\.tmp-.*-([0-9]+)", flags=re.DOTALL)
_DELETED = ".del-"


def delete(path: Path) -> None:
    """Delete a checkpoint, by a rename first, so that no reader finds a part of it under its name."""
    try:
        deleted = free_path(path.with_name(_DELETED + path.name))
        os.rename(path, deleted)
    except FileNotFoundError:
        return  # somebody else was faster
    except OSError as error:
        _warn(path, error)
    else:
        _remove(deleted)


def remove_leftovers(folder: Path) -> None:
    """Remove half-written and half-deleted checkpoints, but those that another live process still writes.

    Half-written ones of this process are removed too: in a container each training has the same number. So nothing may
    be writing to the folder in this process.
    """
    with os.scandir(folder) as entries:
        found = [entry for entry in entries if _is_leftover(entry.name) and entry.is_dir(follow_symlinks=False)]
    for entry in found:
        _remove(Path(entry.path))


def _is_leftover(name: str) -> bool:
    temporary = _TEMPORARY.fullmatch(name)
    return name.startswith(_DELETED) or (temporary is not None and not _is_another_live(int(temporary[1])))


def _is_another_live(pid: int) -> bool:
    try:
        os.kill(pid, 0)  # asks only
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:  # it is another user's
        return True
    return pid != os.getpid()


def _remove(folder: Path) -> None:
    try:
        shutil.rmtree(folder)
    except OSError as error:  # such as files that a reader has open on NFS; not worth the end of a training
        _warn(folder, error)


def _warn(folder: Path, error: OSError) -> None:
    what = f"{shown_path(folder)} cannot be deleted: {error.strerror}"
    warnings.warn(f"{what}; the next run tries again", RuntimeWarning, stacklevel=users_level())
