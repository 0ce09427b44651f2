"""One writer in a ``train_dir`` at a time: a lock that the system frees itself if its holder is killed.

Reading needs no lock: a reader finds whole checkpoints, because these appear and go by renames.
"""

from __future__ import annotations

import contextlib
import errno
import os
import socket
import time
import warnings
import weakref
from pathlib import Path
from typing import Any, Final, final

from train_manager.files.atomic import quote_path
from train_manager.telling.errors import CheckpointError
from train_manager.telling.source_locations import users_level

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

LOCK_FILE: Final = ".lock"
# The answers of file systems that know no locks, such as some network ones.
_NO_LOCKS_HERE: Final = frozenset({errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOTSUP, errno.ENOSYS})
# All locks of this process, for `_let_go_in_child`; weak, so that the set keeps no lock alive.
_all: Final[weakref.WeakSet[WriterLock]] = weakref.WeakSet()


@final
class WriterLock:
    """Keep other writers out of a ``train_dir`` while this object holds the lock.

    >>> import tempfile
    >>> train_dir = Path(tempfile.mkdtemp())
    >>> lock = WriterLock(train_dir)
    >>> with lock:
    ...     lock.is_held
    True
    >>> lock.is_held
    False

    A second object is refused, in this process too: two managers would count and delete each other's checkpoints.
    The lock is one of the system (``flock``), which frees it when the process that holds it ends, however it ends.
    Its file ``.lock`` stays, and names the holder to other processes. Not for several threads at once.

    If the file system has no locks, a RuntimeWarning says so, and no writer is kept out: ``is_enforced`` is False.

    A child made by ``os.fork`` (a worker of a DataLoader) does not hold the lock, so it cannot keep the lock when its
    parent is killed. A child that C code forks without Python's knowledge can, until it ends.

    Args:
        train_dir: the folder.

    Attributes:
        train_dir: the folder.
        is_enforced: whether others are kept out while the lock is held.
    """

    def __init__(self, train_dir: Path) -> None:
        self._file: int | None = None  # the descriptor of the lock file, while the lock is held
        self.train_dir = Path(train_dir)
        self.is_enforced = False
        _all.add(self)

    @property
    def is_held(self) -> bool:
        """Whether this object holds the lock."""
        return self._file is not None

    def acquire(self) -> None:
        """Take the lock; nothing if this object holds it.

        Raises:
            CheckpointError: another object holds it; it is named with process, host and time. Or the folder cannot be
                written.
        """
        try:
            while not self.is_held:
                self._take()
        except OSError as error:
            raise CheckpointError(
                f"train_dir {quote_path(self.train_dir)} cannot be written: {error.strerror}",
                name="train_dir",
                cure="give a train_dir that is a folder, in which you may write",
            ) from error

    def release(self) -> None:
        """Free the lock; nothing if it is not held."""
        # The descriptor is cleared first: __del__ may call this again, when the number may belong to another file.
        file, self._file = self._file, None
        if file is not None:
            os.close(file)

    def __enter__(self) -> WriterLock:
        self.acquire()
        return self

    def __exit__(self, *error: object) -> None:
        self.release()

    def __del__(self) -> None:  # a run that was never closed must not keep the lock
        self.release()

    def __reduce__(self) -> tuple[Any, ...]:  # a copy with the same descriptor would close it under the original
        return WriterLock, (self.train_dir,)

    def _take(self) -> None:
        self._file = os.open(self.train_dir / LOCK_FILE, os.O_RDWR | os.O_CREAT, 0o666)
        try:
            self.is_enforced = self._locks(self._file)
            if self._is_in_place(self._file):
                _tell_holder(self._file)
            else:
                self.release()
        except BaseException:
            self.release()
            raise

    def _locks(self, file: int) -> bool:
        """Take the lock of the system on a file; return whether there is one."""
        if fcntl is None:
            raise CheckpointError("a checkpoint cannot be written on a system without file locks", name="train_dir")
        try:
            # flock belongs to the open file, so a second object of this process is kept out too; lockf would let it in.
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise self._refusal(file) from None
        except OSError as error:
            if error.errno not in _NO_LOCKS_HERE:
                raise
            what = f"nothing keeps a second run from writing to {quote_path(self.train_dir)}"
            why = f"because its file system has no locks ({error.strerror})"
            warnings.warn(f"{what}, {why}", RuntimeWarning, stacklevel=users_level())
            return False
        return True

    def _is_in_place(self, file: int) -> bool:
        """Return whether a lock file is still that of the folder: ``move_away`` renames the folder with its file."""
        try:
            return os.path.samestat(os.fstat(file), os.stat(self.train_dir / LOCK_FILE))
        except FileNotFoundError:  # the new folder has no lock file yet
            return False

    def _refusal(self, file: int) -> CheckpointError:
        # The holder writes its name after it has the lock, so the file may be empty.
        holder = os.pread(file, 1000, 0).decode(errors="replace") or "another process"
        cure = "wait for it, stop it, or give another train_dir"
        if holder.startswith(f"{_this_process()} since"):
            holder = holder.replace(_this_process(), "another run of this process")
            cure = "close that run, or give another train_dir"
        what = f"{quote_path(self.train_dir)} is being written by {holder}"
        return CheckpointError(what, name="train_dir", cure=cure)


def _this_process() -> str:
    # The pid alone is not enough: containers and machines on one file system have the same pids.
    return f"process {os.getpid()} on host {socket.gethostname()}"


def _tell_holder(file: int) -> None:
    with contextlib.suppress(OSError):  # on a full disk the lock still holds, and errors cannot name its holder
        os.ftruncate(file, 0)
        os.pwrite(file, f"{_this_process()} since {time.strftime('%Y-%m-%d %H:%M:%S')}".encode(), 0)


def _let_go_in_child() -> None:
    # The lock belongs to the open file, which a child shares: to close it here does not free the lock of the parent,
    # but the lock of a killed parent is freed only when no child has the file open.
    for lock in list(_all):
        lock.release()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_let_go_in_child)
