"""One writer in a ``train_dir`` at a time: a lock that the system frees itself if its holder is killed.

Reading needs no lock. What is read stays whole, because checkpoints appear and go by renames.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import socket
import time
import warnings
import weakref
from pathlib import Path
from types import TracebackType
from typing import Any, Final, final

from train_manager.files.atomic import shown_path
from train_manager.telling.errors import CheckpointError
from train_manager.telling.source_locations import users_level

try:
    import fcntl
except ImportError:  # not POSIX
    fcntl = None  # type: ignore[assignment]

LOCK_FILE: Final = ".lock"
_NO_LOCKS_HERE: Final = frozenset({errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOTSUP, errno.ENOSYS})
_all: Final[weakref.WeakSet[WriterLock]] = weakref.WeakSet()


@final
class WriterLock:
    """Keep other writers out of a ``train_dir`` while this object holds the lock.

    >>> import tempfile
    >>> train_dir = Path(tempfile.mkdtemp())
    >>> lock = WriterLock(train_dir)
    >>> with lock, lock:  # the same object may take it again
    ...     lock.is_held
    True
    >>> lock.is_held
    False

    A second object is refused, in this process too: two managers would count and delete each other's checkpoints.
    The lock is one of the system (``flock``), which frees it when the process that holds it ends, however it ends.
    Its file ``.lock`` stays, and tells others who holds it. Not for several threads at once.

    If the file system has no locks, a RuntimeWarning says so, and nobody is kept out: ``is_enforced`` is False.

    A child made by ``os.fork`` (a worker of a DataLoader) does not hold the lock, so it cannot keep the lock when its
    parent is killed. A child that C code forks without Python's knowledge can, until it ends.

    Args:
        train_dir: the folder; it is made if it is not there.

    Attributes:
        train_dir: the folder.
        is_enforced: whether others are kept out while the lock is held.
    """

    def __init__(self, train_dir: Path) -> None:
        self._file: int | None = None
        self._depth = 0
        self.train_dir = Path(train_dir)
        self.is_enforced = False
        _all.add(self)

    @property
    def is_held(self) -> bool:
        """Whether this object holds the lock."""
        return self._file is not None

    def acquire(self) -> None:
        """Take the lock, or take it once more.

        Raises:
            CheckpointError: another object holds it; it is named with process, host and time. Or the folder cannot be
                written.
        """
        if self._file is None:
            self._file = self._taken()
        self._depth += 1

    def release(self) -> None:
        """Give back what one ``acquire`` took. The last one frees the lock; a lock that is not held stays as it is."""
        self._depth = max(self._depth - 1, 0)
        if self._depth == 0:
            self._close()

    def take_again(self) -> None:
        """Take the lock of the folder that has the name now, if the folder was renamed while the lock was held."""
        renamed, self._file = self._file, self._taken()
        if renamed is not None:
            os.close(renamed)

    def __enter__(self) -> WriterLock:
        self.acquire()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.release()

    def __del__(self) -> None:  # of a run that was never closed
        self._close()

    def __reduce__(self) -> tuple[Any, ...]:  # a copy must not close the file of the original
        return WriterLock, (self.train_dir,)

    def _taken(self) -> int:
        while True:
            file = self._opened()
            try:
                self.is_enforced = self._locked(file)
                if self._is_in_place(file):
                    _tell_holder(file)
                    return file
            except BaseException:
                os.close(file)
                raise
            os.close(file)  # the folder was moved away between the two calls: its lock is not ours

    def _opened(self) -> int:
        try:
            self.train_dir.resolve().mkdir(parents=True, exist_ok=True)  # also where a link leads to nothing yet
            return os.open(self.train_dir / LOCK_FILE, os.O_RDWR | os.O_CREAT, 0o666)
        except OSError as error:
            raise CheckpointError(
                f"train_dir {shown_path(self.train_dir)} cannot be written: {error.strerror}",
                name="train_dir",
                cure="give a train_dir that is a folder, in which you may write",
            ) from error

    def _locked(self, file: int) -> bool:
        if fcntl is None:
            return self._warn("this system has no file locks")
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise self._refusal(_holder(file)) from None
        except OSError as error:
            if error.errno not in _NO_LOCKS_HERE:
                raise
            return self._warn(f"its file system has no locks ({error.strerror})")
        return True

    def _warn(self, reason: str) -> bool:
        warnings.warn(
            f"nothing keeps a second training from writing to {shown_path(self.train_dir)}, because {reason}",
            RuntimeWarning,
            stacklevel=users_level(),
        )
        return False

    def _is_in_place(self, file: int) -> bool:
        try:
            return os.path.samestat(os.fstat(file), os.stat(self.train_dir / LOCK_FILE))
        except FileNotFoundError:
            return False

    def _refusal(self, holder: dict[str, Any]) -> CheckpointError:
        cure = "wait for it, stop it, or give another train_dir"
        who = "another process"
        if holder.get("pid") == os.getpid() and holder.get("host") == socket.gethostname():
            who, cure = "another run of this process", "close that run, or give another train_dir"
        elif holder:
            who = f"process {holder.get('pid')} on host {holder.get('host')}"
        since = f" since {holder['since']}" if "since" in holder else ""
        what = f"{shown_path(self.train_dir)} is being written by {who}{since}"
        return CheckpointError(what, name="train_dir", cure=cure)

    def _close(self) -> None:
        file, self._file, self._depth = self._file, None, 0
        if file is not None:
            os.close(file)


def _tell_holder(file: int) -> None:
    holder = {
        "pid": os.getpid(),
        "host": socket.gethostname(),
        "since": time.strftime("%Y-%m-%d %H:%M:%S"),
    }
    with contextlib.suppress(OSError):  # on a full disk the lock holds all the same, and others are told less
        os.ftruncate(file, 0)
        os.pwrite(file, json.dumps(holder).encode(), 0)


def _holder(file: int) -> dict[str, Any]:
    """Return what the holder has written; nothing if it is about to."""
    try:
        found = json.loads(os.pread(file, 4096, 0))
    except (ValueError, OSError):
        return {}
    return found if isinstance(found, dict) else {}


def _let_go_in_child() -> None:
    # The lock belongs to the open file, which a child shares: closing it here frees nothing of the parent's.
    for lock in list(_all):
        lock._close()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_let_go_in_child)
