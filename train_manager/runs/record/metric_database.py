"""``metrics.sqlite`` as its writer has it open: each call writes one transaction, wholly or not at all.

Not for several threads at once. ``metric_writer.py`` decides when to write, and what becomes of rows that cannot be.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
from collections.abc import Sequence
from pathlib import Path
from time import monotonic
from typing import Final, final

from train_manager.runs.record.metric_items import Item
from train_manager.runs.record.metric_rows import MetricRows, Numbers
from train_manager.runs.record.metric_schema import database_uri, is_empty, make_tables, require_ours, upgrade

SYNC_SECONDS: Final = 30.0  # a power failure loses at most what was written since the last sync
BUSY_SECONDS: Final = 5.0


@final
class MetricDatabase:
    """The file, opened as it is first written, and again if it was closed.

    Args:
        path: the file.
        run: the run_id of its segments.
        numbers: makes numbers of values.

    Attributes:
        rows: what was written.
        rewritten: how often the file was found replaced, so that it lacks what was written before.
    """

    def __init__(self, path: Path, run: str, numbers: Numbers) -> None:
        self.path, self.rows = path, MetricRows(run, numbers)
        self.rewritten = 0
        self._connection: sqlite3.Connection | None = None
        self._file: tuple[int, int] | None = None  # which file the path was, as it was opened
        self._synced_at = 0.0

    def write(self, items: Sequence[Item]) -> None:
        """Write all, in one transaction.

        Raises:
            sqlite3.Error: the file cannot be written, or is damaged; or an item cannot be stored, as other errors.
            OSError: its folder cannot be made.
            InputError: it is a file of another program, or of a newer version.
        """
        if self._connection is not None and self._file != file_at(self.path):
            self.close()
        is_new = self._connection is None
        connection, before = self._opened(), self.rows.mark()
        try:
            connection.execute("BEGIN IMMEDIATE")
            has_all = not is_new or self.rows.claim(connection)
            self.rows.write(connection, items)
            connection.execute("COMMIT")  # which fails too, if the disk is full
        except BaseException:
            self.close()  # which rolls back
            self.rows.go_back(before)
            raise
        self.rewritten += not has_all
        if monotonic() - self._synced_at > SYNC_SECONDS:
            self._sync(connection)

    def _opened(self) -> sqlite3.Connection:
        if self._connection is None:
            self.path.parent.mkdir(parents=True, exist_ok=True)  # it may have been removed while the training runs
            connection = connected(self.path)
            try:
                prepare(connection, self.path)
            except BaseException:
                connection.close()
                raise
            self._connection, self._file, self._synced_at = connection, file_at(self.path), monotonic()
        return self._connection

    def _sync(self, connection: sqlite3.Connection) -> None:
        """Bring all that is written to the disk itself; readers do not mind."""
        connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
        self._synced_at = monotonic()

    def close(self) -> None:
        """Close the file for a moment; what is committed stays committed."""
        connection, self._connection = self._connection, None
        if connection is not None:
            with contextlib.suppress(sqlite3.Error):
                connection.close()

    def put_away(self) -> None:
        """Close the file, synced and without ``-wal`` and ``-shm``, to be read in read-only folders."""
        if self._connection is not None:
            with contextlib.suppress(sqlite3.Error):
                self._connection.execute("PRAGMA busy_timeout=0")  # a reader that has it open keeps these files
                self._connection.execute("PRAGMA journal_mode=DELETE").fetchone()
        self.close()

    def leave_to_parent(self) -> sqlite3.Connection | None:
        """Forget everything without a touch, in a child that was forked while the file was open."""
        connection, self._connection = self._connection, None
        self.rows.forget()
        return connection


def connected(path: Path) -> sqlite3.Connection:
    """Open the file for writing; it is made if it is not there."""
    # Another thread may use it later, under the lock of its owner; transactions are begun by hand.
    return sqlite3.connect(
        database_uri(path, "rwc"), uri=True, timeout=BUSY_SECONDS, isolation_level=None, check_same_thread=False
    )


def prepare(connection: sqlite3.Connection, path: Path) -> None:
    """Make the tables if they are not there, or are of the first version, and set how the file is written.

    Raises:
        InputError: it is a file of another program, or of a newer version.
    """
    if not is_empty(connection):
        require_ours(connection, path)  # before anything is changed
    synchronous = "NORMAL" if uses_wal(connection) else "FULL"  # else a power failure could damage the file
    connection.execute(f"PRAGMA synchronous={synchronous}")
    connection.execute("BEGIN IMMEDIATE")  # two processes may find it empty
    if is_empty(connection):
        make_tables(connection)
    require_ours(connection, path)
    upgrade(connection)
    connection.execute("COMMIT")


def uses_wal(connection: sqlite3.Connection) -> bool:
    """Turn on the write-ahead log, with which readers never wait; some network drives have no shared memory for it."""
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
