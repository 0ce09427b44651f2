"""What ``metrics.sqlite`` looks like inside, and how its path becomes one that SQLite opens."""

from __future__ import annotations

import os
import re
import sqlite3
from pathlib import Path
from typing import Final, NamedTuple
from urllib.parse import quote

from train_manager.files.atomic import quote_path
from train_manager.telling.errors import InputError

FILE: Final = "metrics.sqlite"
APPLICATION_ID: Final = 0x544D4D45  # "TMME", in the header of the file
VERSION: Final = 3
FIRST: Final = 1
"""The first version that is read; it is upgraded when it is written. Version 1 had no arrays, and used ids of deleted
rows again; version 2 had no trainings: all rows counted up to the step from which a later segment continued.
"""
LATEST: Final = 2**62
"""A step after all steps: a segment that builds on it supersedes nothing."""
BATCHES, EPOCHS, EVALUATIONS = "train_step_batch", "train_step_epoch", "eval"
BATCH_SIZE: Final = "batch_size"
"""The series with the number of examples of a batch, at the steps where the number changes."""
RANKS: Final = "ranks"
"""The series with the number of processes that train together, at the first step of a segment; one alone writes none.

Then the losses of batches are of the rows of rank 0; those of epochs and evaluations are of all rows.
"""
HISTORY: Final = "history"
"""The series of texts that have the rows of ``tm.history`` as JSON, of the stages EPOCHS and EVALUATIONS."""
COLUMNS: Final = {  # of each table of metrics, the columns that the other tables lack
    "scalars": "value",
    "histograms": "edges, counts",
    "texts": "text",
    "files": "path, size, sha256",
    "arrays": "shape, labels, numbers",
}
TABLES: Final = tuple(COLUMNS)
OF_FIRST: Final = TABLES[:-1]  # the tables of version 1

SCHEMA: Final = """
CREATE TABLE segments(             -- a stretch of rows that was written without going back to an earlier step
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    run TEXT NOT NULL,             -- the run_id of the TrainManager
    training INTEGER,              -- the id of the segment that it began with; the last segment's training counts
    began REAL NOT NULL,           -- seconds since 1970
    from_step INTEGER,             -- the last step that it builds on; -1: none; NULL: rows that version 2 has replaced
    until_step INTEGER             -- rows of later steps are superseded by a later segment; NULL: none of them
);
CREATE TABLE series(
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    name TEXT NOT NULL,            -- "loss", "accuracy", "lr", "losses/<part>"
    stage TEXT NOT NULL,           -- "train_step_batch", "train_step_epoch", "eval", or "" for those of hooks
    datasource TEXT NOT NULL,      -- the evaluation set, or the set that the batch is of
    phase TEXT NOT NULL,           -- "" outside of phases
    UNIQUE(name, stage, datasource, phase)
);
CREATE TABLE scalars(
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    series INTEGER NOT NULL, segment INTEGER NOT NULL, step INTEGER NOT NULL, epoch INTEGER NOT NULL,
    time REAL NOT NULL,            -- seconds since 1970
    value REAL,                    -- NULL is nan, which SQLite does not store; -0.0 becomes 0.0
    own_step INTEGER               -- that a hook has given, in place of the step at which it was written
);
CREATE TABLE histograms(
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    series INTEGER NOT NULL, segment INTEGER NOT NULL, step INTEGER NOT NULL, epoch INTEGER NOT NULL,
    time REAL NOT NULL, edges BLOB NOT NULL, counts BLOB NOT NULL, own_step INTEGER  -- little-endian float64, int64
);
CREATE TABLE texts(
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    series INTEGER NOT NULL, segment INTEGER NOT NULL, step INTEGER NOT NULL, epoch INTEGER NOT NULL,
    time REAL NOT NULL, text TEXT NOT NULL, own_step INTEGER
);
CREATE TABLE files(
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    series INTEGER NOT NULL, segment INTEGER NOT NULL, step INTEGER NOT NULL, epoch INTEGER NOT NULL,
    time REAL NOT NULL, path TEXT NOT NULL, size INTEGER, sha256 TEXT, own_step INTEGER
);
CREATE TABLE arrays(
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    series INTEGER NOT NULL, segment INTEGER NOT NULL, step INTEGER NOT NULL, epoch INTEGER NOT NULL,
    time REAL NOT NULL,
    shape TEXT NOT NULL,           -- as JSON: [200], or [10, 10]
    labels TEXT,                   -- as JSON, of the first axis; NULL: those of the row before of series and segment
    numbers BLOB NOT NULL,         -- little-endian float32, the last axis fastest
    own_step INTEGER
);
CREATE VIEW metrics AS             -- pandas.read_sql("SELECT * FROM metrics WHERE latest", connection)
SELECT
    run,
    CASE phase WHEN '' THEN '' ELSE phase || '/' END || CASE stage
        WHEN 'train_step_batch' THEN
            'batch/' || name || CASE WHEN datasource IN ('', 'train') THEN '' ELSE '/' || datasource END
        WHEN 'train_step_epoch' THEN 'epoch/' || name
        WHEN 'eval' THEN 'eval/' || datasource || '/' || name
        ELSE name END AS series,
    coalesce(own_step, step) AS step,
    value,
    training IS (SELECT training FROM segments ORDER BY id DESC LIMIT 1)
        AND step <= coalesce(until_step, step) AS latest
FROM scalars JOIN series ON series.id = series JOIN segments ON segments.id = segment;
"""


class Series(NamedTuple):
    """The name of a series of metrics, and where it is measured.

    Attributes:
        name: such as "loss", "lr", "losses/generator", or what a hook has called it.
        stage: "train_step_batch" (of each batch), "train_step_epoch" and "eval" (rows of the history), or "" for what
            hooks write.
        datasource: the evaluation set, or the set that the batches are of.
        phase: the name of the phase; "" outside of phases.
    """

    name: str
    stage: str = ""
    datasource: str = ""
    phase: str = ""


def database_uri(path: Path, mode: str) -> str:
    """Return a path as SQLite opens it, whatever characters it has; ``mode`` is "ro", "rw" or "rwc".

    >>> database_uri(Path("/runs/50% off?/metrics.sqlite"), "ro")
    'file:/runs/50%25%20off%3F/metrics.sqlite?mode=ro'
    """
    return f"file:{quote(os.fsencode(path.absolute()))}?mode={mode}"


def is_empty(connection: sqlite3.Connection) -> bool:
    """Return whether the file has nothing in it yet, so that the tables may be made."""
    (found,) = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
    return not found and not _pragma(connection, "application_id") and not _pragma(connection, "user_version")


def make_tables(connection: sqlite3.Connection) -> None:
    """Make the tables in an empty file, inside of the transaction that is open."""
    for statement in SCHEMA.split(";\n"):
        if statement.strip():
            connection.execute(statement)
    connection.execute(f"PRAGMA application_id={APPLICATION_ID}")
    connection.execute(f"PRAGMA user_version={VERSION}")


def upgrade(connection: sqlite3.Connection) -> None:
    """Upgrade the tables of an earlier version, inside of the transaction that is open."""
    if _pragma(connection, "user_version") == VERSION:
        return
    for statement in filter(str.strip, SCHEMA.split(";\n")):
        name = re.findall(r"\w+", statement)[2]
        # SQLite keeps the text of each CREATE statement: a table with the same text needs no upgrade.
        present = [found for (found,) in connection.execute("SELECT sql FROM sqlite_master WHERE name = ?", (name,))]
        if present == [statement.strip()]:
            continue
        columns = ", ".join(row[1] for row in connection.execute(f"PRAGMA table_info({name})"))
        if columns:
            # SQLite cannot add AUTOINCREMENT to a table: its rows move into a new one.
            connection.execute(f"ALTER TABLE {name} RENAME TO earlier")
        connection.execute(statement)
        if columns:
            connection.execute(f"INSERT INTO {name}({columns}) SELECT {columns} FROM earlier ORDER BY id")
            connection.execute("DROP TABLE earlier")
    # Each segment belongs to the training of the last segment before it that built on nothing.
    first = "SELECT id FROM segments AS first WHERE first.id <= segments.id AND first.from_step = -1 ORDER BY id DESC"
    connection.execute(f"UPDATE segments SET training = coalesce(({first} LIMIT 1), 0)")
    connection.execute(f"PRAGMA user_version={VERSION}")


def require_ours(connection: sqlite3.Connection, path: Path) -> None:
    """Refuse a file of another program, or of a version that is not known here.

    Raises:
        InputError: it is one.
    """
    if _pragma(connection, "application_id") != APPLICATION_ID:
        what = f"{quote_path(path)} is a database of another program"
        raise InputError(what, name="train_dir", cure="move it away, or give another train_dir")
    version = _pragma(connection, "user_version")
    if not FIRST <= version <= VERSION:
        what = f"{quote_path(path)} has version {version} of the metrics, but this train_manager knows {VERSION}"
        raise InputError(what, name="train_dir", cure="use the version of train_manager that wrote it, or a newer one")
    for table in tables_of(version):
        columns = {row[1] for row in connection.execute(f"PRAGMA table_info({table})")}
        if "own_step" not in columns:  # before a release it had none
            what = f"{quote_path(path)} is not whole: its table {table} lacks a column"
            cure = "it was begun by a train_manager of before its release, or changed; move it away"
            raise InputError(what, name="train_dir", cure=cure)


def tables_of(version: int) -> tuple[str, ...]:
    """Return the tables of metrics that a version has."""
    return OF_FIRST if version == FIRST else TABLES


def has_table(connection: sqlite3.Connection, table: str) -> bool:
    """Return whether a file that is ours has a table of metrics."""
    return table in tables_of(_pragma(connection, "user_version"))


def has_trainings(connection: sqlite3.Connection) -> bool:
    """Return whether the segments of a file that is ours tell of which training they are."""
    return _pragma(connection, "user_version") > 2


def _pragma(connection: sqlite3.Connection, name: str) -> int:
    (value,) = connection.execute(f"PRAGMA {name}").fetchone()
    return int(value)
