"""``metrics.sqlite`` as its writer has it open: each call writes one transaction, wholly or not at all.

Not for several threads at once. ``thread.py`` decides when to write, and keeps items that cannot be written.
"""

from __future__ import annotations

import contextlib
import json
import os
import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from time import monotonic, time
from typing import Any, Final, Protocol, TypeAlias, final

from train_manager.runs.store.batches import Item
from train_manager.runs.store.rows import (
    Begin,
    Counted,
    HistoryRow,
    Metric,
    Row,
    StoredFile,
    StoredRow,
    Vector,
    item_of,
    metrics_in,
    row_of_text,
    storable,
    text_of_row,
)
from train_manager.runs.store.schema import (
    EPOCHS,
    EVALUATIONS,
    Part,
    Series,
    database_uri,
    is_empty,
    make_tables,
    require_ours,
)

SYNC_SECONDS: Final = 30.0  # seconds between two syncs; a power failure loses the transactions since the last one
BUSY_SECONDS: Final = 5.0  # seconds that a transaction waits for another process
TOGETHER: Final = 140  # scalars in one statement: 980 variables, of the 999 that old versions of SQLite allow
INSERT: Final = "INSERT INTO scalars(run, series, step, own_step, epoch, time, value) VALUES "
ONE: Final = "(?, ?, ?, ?, ?, ?, ?)"
MANY: Final = INSERT + ", ".join([ONE] * TOGETHER)
WIDTH: Final = ONE.count("?")


Told: TypeAlias = dict[Part, list[StoredRow]]
"""Rows that were written, by the part that they are of."""


class Numbers(Protocol):
    """Makes numbers of values, which may be tensors."""

    def __call__(self, values: Sequence[Any]) -> Sequence[float]:
        """Return the values of scalars."""

    def blobs(self, blobs: Sequence[tuple[str, Any]]) -> Sequence[bytes]:
        """Return numbers of a kind ("f", "d" or "q") as bytes, the lowest byte first."""


@dataclass(frozen=True)
class OpenPart:
    """The part that rows go into, as the file has it."""

    row: Part
    is_aside: bool  # nothing was trained in it yet
    history: Mapping[tuple[str, int], str] = field(default_factory=dict)  # its rows as texts, by stage and number
    shift: int = 0  # evaluations of the part that it resumes, which its program does not have in its history


@final
class Database:
    """The file, opened as it is first written, and again if it was closed.

    Args:
        path: the file.
        run: the run_id of its parts.
        numbers: makes numbers of values.

    Attributes:
        rewritten: how often the file was found replaced, so that it lacks what was written before.
    """

    def __init__(self, path: Path, run: str, numbers: Numbers) -> None:
        self.path, self._numbers = path, numbers
        self._manager = self._run = run  # the run_id of the TrainManager; in a forked child the run is another one
        self.rewritten = 0
        self._part: OpenPart | None = None
        self._begin: Begin | None = None  # of a part that is made with its first row, so that none stays empty
        self._connection: sqlite3.Connection | None = None  # None before the first write, and after each `close`
        self._ids: dict[tuple[Series, str], int] = {}  # of series with their labels, in the open file
        self._file: tuple[int, int] | None = None  # device and inode of the file that the connection has open
        self._synced_at = 0.0
        self._told: Told | None = None  # gets the rows of the present transaction

    def write(self, items: Sequence[Item], told: Told | None = None) -> None:
        """Write all, in one transaction; add the rows that followers are told of to ``told``, if there are any.

        Raises:
            sqlite3.Error: the file cannot be written, or is damaged; or an item cannot be stored, as other errors.
            OSError: its folder cannot be made.
            InputError: it is a file of another program, or of another version.
        """
        # The file was deleted or replaced while it was open: writing on would go into a file that has no name any more.
        if self._connection is not None and self._file != file_at(self.path):
            self.close()
        connection, before = self._open(), (self._part, self._begin, self.rewritten)
        self._told = told
        try:
            connection.execute("BEGIN IMMEDIATE")
            self._find_part_again(connection)
            self._write(connection, items)
            connection.execute("COMMIT")  # fails if the disk is full
        except BaseException:
            # Closing rolls the transaction back, also the ids that were given inside of it.
            self.close()
            self._part, self._begin, self.rewritten = before
            raise
        if monotonic() - self._synced_at > SYNC_SECONDS:
            self._sync(connection)

    def _write(self, connection: sqlite3.Connection, items: Sequence[Item]) -> None:
        metrics: list[Metric] = []
        for item in items:
            if isinstance(item, tuple):
                metrics.append(item)
            elif isinstance(item, Begin):
                self._put_metrics(connection, metrics)  # of the part before
                metrics, self._begin = [], item
                if item.step is None:  # its evaluations are in the history that it brings
                    self._present_part(connection)
            else:
                self._put_row(connection, item)
        self._put_metrics(connection, metrics)

    # ---- parts ---------------------------------------------------------------------------------------------------

    def _present_part(self, connection: sqlite3.Connection) -> OpenPart:
        begin, self._begin = self._begin, None
        if begin is not None or self._part is None:
            # In a forked child a row may come without a Begin, which the parent has had.
            self._make_part(connection, begin or Begin(time(), self._manager, None, {}))
        assert self._part is not None, "it has just been made"
        return self._part

    def _make_part(self, connection: sqlite3.Connection, begin: Begin) -> None:
        resumes, before = self._resumed(connection, begin), self._part
        if before is not None and before.is_aside and before.row.id == resumes:
            self._part = replace(before, is_aside=begin.step is None)  # an evaluation was the beginning of a training
        else:
            row = self._run, begin.time, resumes, None if resumes is None else begin.step
            made = connection.execute("INSERT INTO runs(run, began, resumes, step) VALUES (?, ?, ?, ?)", row)
            self._part = OpenPart(Part(made.lastrowid or 0, *row), is_aside=begin.step is None)
        self._take_history(connection, begin, resumes)

    def _resumed(self, connection: sqlite3.Connection, begin: Begin) -> int | None:
        """Return the id of the part that a part resumes; None if there is none in this file."""
        if begin.step is not None:
            # An evaluation, which cuts nothing, is not resumed: else rows would count that it has left in place.
            newest = "SELECT max(id) FROM runs WHERE run = ? AND (resumes IS NULL OR step NOT NULL)"
        else:  # what goes on from the run counts after the evaluation too
            newest = "SELECT max(counting.run) FROM counting JOIN runs ON runs.id = part WHERE runs.run = ?"
        (found,) = connection.execute(newest, (begin.resumes,)).fetchone()
        if found is None and begin.step is None and begin.resumes == self._manager:
            # An evaluation of a program that has loaded no checkpoint: the training of the folder still counts.
            (found,) = connection.execute("SELECT max(id) FROM runs").fetchone()
        return None if found is None else int(found)

    def _find_part_again(self, connection: sqlite3.Connection) -> None:
        """Begin the part anew if the file has lost it, with the history that it had."""
        part = self._part
        sql = "SELECT 1 FROM runs WHERE id = ? AND run = ? AND began = ?"
        if part is None or connection.execute(sql, part.row[:3]).fetchone():
            return
        self.rewritten += 1
        made = connection.execute("INSERT INTO runs(run, began) VALUES (?, ?)", part.row[1:3])
        self._part = replace(part, row=Part(made.lastrowid or 0, *part.row[1:3], None, None))
        for (stage, number), text in part.history.items():
            put_row(connection, self._part.row.id, stage, number, time(), text)

    # ---- the history ---------------------------------------------------------------------------------------------

    def _take_history(self, connection: sqlite3.Connection, begin: Begin, resumes: int | None) -> None:
        """Write the history of a part that begins, as a whole."""
        assert self._part is not None, "it has just been made"
        sql = "SELECT stage, number, time, row FROM history WHERE run = ? ORDER BY stage, number"
        before = connection.execute(sql, (resumes,)).fetchall()
        known = {(stage, text): at for stage, _, at, text in before}
        given = {stage: [*map(text_of_row, rows)] for stage, rows in begin.history.items()}
        shift = 0
        if begin.step is None and resumes is not None:
            # What was evaluated comes after all rows of the part that it resumes.
            own = given.get(EVALUATIONS, [])
            old = {stage: [text for of, _, _, text in before if of == stage] for stage in (EPOCHS, EVALUATIONS)}
            kept = len(own) - begin.new
            given = {**old, EVALUATIONS: [*old[EVALUATIONS], *own[kept:]]}
            shift = len(old[EVALUATIONS]) - kept
        history = {(stage, number): text for stage, texts in given.items() for number, text in enumerate(texts)}
        for (stage, number), text in history.items():
            put_row(connection, self._part.row.id, stage, number, known.get((stage, text), begin.time), text)
            if (stage, text) not in known:
                self._tell_of_row(stage, row_of_text(text), {}, begin.time)
        self._part = replace(self._part, history=history, shift=shift)

    def _put_row(self, connection: sqlite3.Connection, item: HistoryRow) -> None:
        part, text = self._present_part(connection), text_of_row(item.row)
        place = item.stage, item.number + (part.shift if item.stage == EVALUATIONS else 0)
        before = part.history.get(place)
        if text != before:
            put_row(connection, part.row.id, *place, item.time, text)
            if text not in part.history.values():  # else a row that has moved, because one before it was replaced
                self._tell_of_row(item.stage, item.row, row_of_text(before or "{}"), item.time)
            self._part = replace(part, history={**part.history, place: text})

    def _tell_of_row(self, stage: str, row: Row, before: Row, at: float) -> None:
        """Tell followers of the new metrics of a row; of those of an epoch once it is whole."""
        if self._told is not None and not row.get("partial"):
            known = {} if before.get("partial") else before
            new = [found for found in metrics_in(stage, row) if known.get(found[0].name) != row[found[0].name]]
            self._tell(StoredRow(series, row["step"], row["epoch"], at, value) for series, value in new)

    def _tell(self, rows: Iterable[StoredRow]) -> None:
        if self._told is not None and self._part is not None:
            self._told.setdefault(self._part.row, []).extend(rows)

    # ---- metrics -------------------------------------------------------------------------------------------------

    def _put_metrics(self, connection: sqlite3.Connection, metrics: Sequence[Metric]) -> None:
        if not metrics:
            return
        part = self._present_part(connection)
        self._put_scalars(connection, part.row.id, [one for one in metrics if not isinstance(one[5], ITEMS)])
        self._put_items(connection, part.row.id, [one for one in metrics if isinstance(one[5], ITEMS)])

    def _put_scalars(self, connection: sqlite3.Connection, part: int, metrics: Sequence[Metric]) -> None:
        # All tensors at once: a device is waited for once, and not for each number.
        values = self._numbers([metric[5] for metric in metrics])
        ids = {series: self._id_of(connection, series) for series in {metric[0] for metric in metrics}}
        flat: list[Any] = []
        for (series, step, own_step, epoch, at, _), value in zip(metrics, values, strict=True):
            flat += (part, ids[series], step, own_step, epoch, at, value)
        insert(connection, flat)
        self._tell(
            StoredRow(series, step if own_step is None else own_step, epoch, at, value)
            for (series, step, own_step, epoch, at, _), value in zip(metrics, values, strict=True)
        )

    def _put_items(self, connection: sqlite3.Connection, part: int, metrics: Sequence[Metric]) -> None:
        read = iter(self._numbers.blobs([blob for metric in metrics for blob in blobs_of(metric[5])]))
        for series, step, own_step, epoch, at, value in metrics:
            labels = json.dumps(value.labels) if isinstance(value, Vector) and value.labels else ""
            columns = columns_of(value, read)
            place = self._id_of(connection, series, labels), step, own_step, epoch, at
            sql = "INSERT INTO items(run, series, step, own_step, epoch, time, kind, form, content) VALUES "
            connection.execute(f"{sql}(?, ?, ?, ?, ?, ?, ?, ?, ?)", (part, *place, *columns))
            if self._told is not None:
                step = step if own_step is None else own_step
                self._tell([StoredRow(series, step, epoch, at, item_of(*columns, labels, step, epoch, at))])

    def _id_of(self, connection: sqlite3.Connection, series: Series, labels: str = "") -> int:
        """Return the id of a series; it is made if it is new."""
        if (series, labels) not in self._ids:
            row = (*map(storable, series), storable(labels))
            connection.execute(
                "INSERT OR IGNORE INTO series(name, stage, datasource, phase, labels) VALUES (?, ?, ?, ?, ?)", row
            )
            sql = "SELECT id FROM series WHERE name = ? AND stage = ? AND datasource = ? AND phase = ? AND labels = ?"
            (self._ids[series, labels],) = connection.execute(sql, row).fetchone()
        return self._ids[series, labels]

    # ---- the file ------------------------------------------------------------------------------------------------

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
        self._ids = {}  # another process may replace the file until it is opened again
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
        self._run = f"{self._manager}-{os.getpid()}"
        self._part, self._begin, self._ids = None, None, {}
        return connection


ITEMS: Final = (Vector, Counted, str, StoredFile)


def blobs_of(value: Any) -> list[tuple[str, Any]]:
    """Return the numbers of an item that become bytes, with their kinds."""
    if isinstance(value, Vector):
        return [("f", value.values)]
    return [("d", value.edges), ("q", value.counts)] if isinstance(value, Counted) else []


def columns_of(value: Any, read: Iterator[bytes]) -> tuple[str, str | None, Any]:
    """Return kind, form and content of an item; ``read`` has the bytes of its numbers."""
    if isinstance(value, Vector):
        return "array", json.dumps(value.shape), next(read)
    if isinstance(value, Counted):
        return "histogram", None, next(read) + next(read)
    if isinstance(value, StoredFile):
        return "file", json.dumps({"size": value.size, "sha256": value.sha256}), value.path
    return "text", None, value


def put_row(connection: sqlite3.Connection, part: int, stage: str, number: int, at: float, text: str) -> None:
    """Write a row of the history, in the place of the one with this number if there is one."""
    connection.execute("INSERT OR REPLACE INTO history VALUES (?, ?, ?, ?, ?)", (part, stage, number, at, text))


def insert(connection: sqlite3.Connection, flat: list[Any]) -> None:
    """Insert scalars, many with each statement."""
    # Not `executemany`: it releases the GIL for each row, and waits for it up to 5 ms while the training runs Python.
    width = WIDTH * TOGETHER
    whole = len(flat) - len(flat) % width
    for start in range(0, whole, width):
        connection.execute(MANY, flat[start : start + width])
    if rest := flat[whole:]:
        connection.execute(INSERT + ", ".join([ONE] * (len(rest) // WIDTH)), rest)


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
