"""``metrics.sqlite`` as its writer has it open: each call writes one transaction, wholly or not at all.

Not for several threads at once. ``thread.py`` decides when to write, and keeps items that cannot be written.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
from collections.abc import Sequence
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Final, final

from train_manager.runs.store.batches import Item
from train_manager.runs.store.parts import RunParts, Told
from train_manager.runs.store.schema import database_uri, is_empty, make_tables, require_ours

if TYPE_CHECKING:
    from train_manager.metrics.host_numbers import HostNumbers

SYNC_SECONDS: Final = 30.0  # seconds between two syncs; a power failure loses the transactions since the last one
BUSY_SECONDS: Final = 5.0  # seconds that a transaction waits for another process


@final
class Database:
    """The file, opened as it is first written, and again if it was closed.

    Args:
        path: the file.
        run: the run_id of its parts.
        numbers: makes numbers of values.
    """

    def __init__(self, path: Path, run: str, numbers: HostNumbers) -> None:
        self.path, self._parts = path, RunParts(run, numbers)
        self._connection: sqlite3.Connection | None = None  # None before the first write, and after each `close`
        self._file: tuple[int, int] | None = None  # device and inode of the file that the connection has open
        self._synced_at = 0.0

    def write(self, items: Sequence[Item], told: Told | None = None) -> bool:
        """Write all, in one transaction.

        Args:
            items: what is written.
            told: gets the rows that were written, if there are followers.

        Returns:
            Whether the file has what was written before; else it was removed or replaced.

        Raises:
            sqlite3.Error: the file cannot be written, or is damaged; or an item cannot be stored, as other errors.
            OSError: its folder cannot be made.
            InputError: it is a file of another program, or of another version.
        """
        # The file was deleted or replaced while it was open: writing on would go into a file that has no name any more.
        if self._connection is not None and self._file != file_at(self.path):
            self.close()
        connection, parts = self._open(), self._parts.copied(told)
        try:
            connection.execute("BEGIN IMMEDIATE")
            parts.write(connection, items)
            connection.execute("COMMIT")  # fails if the disk is full
        except BaseException:
            self.close()  # rolls the transaction back
            raise
        self._parts = parts
        if monotonic() - self._synced_at > SYNC_SECONDS:
            self._sync(connection)
        return not parts.is_rewritten

    def _open(self) -> sqlite3.Connection:
        if self._connection is None:
            self.path.parent.mkdir(parents=True, exist_ok=True)  # also after a user has deleted it
            connection = connect(self.path)
            try:
                prepare(connection, self.path)
            except BaseException:
                connection.close()
                raise
            self._connection, self._file, self._synced_at = connection, file_at(self.path), monotonic()
        return self._connection

    def _sync(self, connection: sqlite3.Connection) -> None:
        """Move the write-ahead log into the file, with an fsync; PASSIVE does not wait for readers."""
        connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
        self._synced_at = monotonic()

    def close(self) -> None:
        """Close the file for a moment; what is committed stays committed."""
        connection, self._connection = self._connection, None
        self._parts.forget_file()
        if connection is not None:
            with contextlib.suppress(sqlite3.Error):
                connection.close()

    def close_without_log(self) -> None:
        """Close the file, synced and without ``-wal`` and ``-shm``, to be read in read-only folders."""
        if self._connection is not None:
            with contextlib.suppress(sqlite3.Error):
                # Without a wait: while a reader has the file open, -wal and -shm cannot be removed, and stay.
                self._connection.execute("PRAGMA busy_timeout=0")
                self._connection.execute("PRAGMA journal_mode=DELETE").fetchone()
        self.close()

    def leave_to_parent(self) -> sqlite3.Connection | None:
        """Forget the connection in a forked child, and return it: it must be neither used nor closed there.

        What the child writes is a run of its own.
        """
        connection, self._connection = self._connection, None
        self._parts.leave_to_parent()
        return connection


def connect(path: Path) -> sqlite3.Connection:
    """Open the file for writing; it is made if it is not there."""
    # check_same_thread: the thread and the training use it in turn, under a lock. isolation_level=None: Python begins
    # no transactions by itself.
    return sqlite3.connect(
        database_uri(path, "rwc"), uri=True, timeout=BUSY_SECONDS, isolation_level=None, check_same_thread=False
    )


def prepare(connection: sqlite3.Connection, path: Path) -> None:
    """Make the tables if they are not there, and set how the file is written.

    Raises:
        InputError: it is a file of another program, or of another version.
    """
    if not is_empty(connection):
        require_ours(connection, path)  # before the journal mode of another program's file is changed
    # With NORMAL, a power failure can damage the file unless it has a write-ahead log.
    synchronous = "NORMAL" if uses_wal(connection) else "FULL"
    connection.execute(f"PRAGMA synchronous={synchronous}")
    # The lock comes before the second look: another process may have found the file empty too, and made the tables.
    connection.execute("BEGIN IMMEDIATE")
    if is_empty(connection):
        make_tables(connection)
    require_ours(connection, path)
    connection.execute("COMMIT")


def uses_wal(connection: sqlite3.Connection) -> bool:
    """Turn on the write-ahead log, with which readers never wait; return whether the file system allows it."""
    # Some network drives lack the shared memory that the log needs: SQLite keeps its journal there.
    try:
        (mode,) = connection.execute("PRAGMA journal_mode=WAL").fetchone()
    except sqlite3.OperationalError:
        (mode,) = connection.execute("PRAGMA journal_mode").fetchone()
    return str(mode) == "wal"


def file_at(path: Path) -> tuple[int, int] | None:
    """Return which file a path is now; None if there is none."""
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_dev, found.st_ino
