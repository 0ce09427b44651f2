"""What ``metrics.sqlite`` looks like inside, and how its path becomes one that SQLite opens."""

from __future__ import annotations

import os
import sqlite3
from pathlib import Path
from typing import Final, NamedTuple
from urllib.parse import quote

from train_manager.files.atomic import quote_path
from train_manager.telling.errors import InputError

FILE: Final = "metrics.sqlite"
APPLICATION_ID: Final = 0x544D4D45  # "TMME", in the header of the file
VERSION: Final = 4
BATCHES, EPOCHS, EVALUATIONS = "train_step_batch", "train_step_epoch", "eval"
BATCH_SIZE: Final = "batch_size"
"""The series with the number of examples of a batch, at the steps where the number changes."""
RANKS: Final = "ranks"
"""The series with the number of processes that train together, at the first step of a part; one alone writes none.

Then the losses of batches are of the rows of rank 0; those of epochs and evaluations are of all rows.
"""

SCHEMA: Final = """
CREATE TABLE runs(                 -- the parts of runs: a part never goes back to an earlier step
    id INTEGER PRIMARY KEY,
    run TEXT NOT NULL,             -- the run_id of its TrainManager
    began REAL NOT NULL,           -- seconds since 1970
    resumes INTEGER,               -- the part whose rows it goes on from; NULL: a training that begins
    step INTEGER                   -- rows of that part count up to this step; NULL: all of them
);
CREATE TABLE series(
    id INTEGER PRIMARY KEY,
    name TEXT NOT NULL,            -- "loss", "lr", "losses/<part>", or what a hook has called it
    stage TEXT NOT NULL,           -- "train_step_batch", or "" for what hooks write
    datasource TEXT NOT NULL,      -- the set that the batch is of
    phase TEXT NOT NULL,           -- "" outside of phases
    labels TEXT NOT NULL,          -- of arrays, as JSON: the names of the first axis; "" for none
    UNIQUE(name, stage, datasource, phase, labels)
);
CREATE TABLE scalars(
    run INTEGER NOT NULL,          -- the part, as in the tables below
    series INTEGER NOT NULL,
    step INTEGER NOT NULL,         -- at which it was written
    own_step INTEGER,              -- that a hook has given in place of it
    epoch INTEGER NOT NULL,
    time REAL NOT NULL,            -- seconds since 1970
    value REAL                     -- NULL is nan, which SQLite does not store; -0.0 becomes 0.0
);
CREATE TABLE items(
    run INTEGER NOT NULL, series INTEGER NOT NULL, step INTEGER NOT NULL, own_step INTEGER, epoch INTEGER NOT NULL,
    time REAL NOT NULL,
    kind TEXT NOT NULL,            -- "array", "histogram", "text" or "file"
    form TEXT,                     -- of an array its shape, as JSON; of a file {"size": ..., "sha256": ...}
    content NOT NULL               -- little-endian: float32 of an array; of a histogram edges (float64), counts (int64)
);
CREATE TABLE history(              -- the rows of tm.history; each part has all of them
    run INTEGER NOT NULL,
    stage TEXT NOT NULL,           -- "train_step_epoch" or "eval"
    number INTEGER NOT NULL,       -- its place among the rows of the stage
    time REAL NOT NULL,
    row TEXT NOT NULL,             -- as JSON; {"$float": "nan"} is a number that JSON lacks
    PRIMARY KEY(run, stage, number)
) WITHOUT ROWID;
CREATE VIEW counting AS            -- for a part `run`: the parts whose rows count, up to the step `until` (NULL: all)
WITH RECURSIVE chain(run, part, until) AS (
    SELECT id, id, NULL FROM runs
    UNION
    SELECT chain.run, runs.resumes, coalesce(min(runs.step, until), runs.step, until)
    FROM chain JOIN runs ON runs.id = part WHERE runs.resumes IS NOT NULL
)
SELECT run, part, until FROM chain;
CREATE VIEW history_numbers AS     -- the metrics of the rows of the history
SELECT
    run, stage, coalesce(json_extract(row, '$.set'), '') AS datasource,
    coalesce(json_extract(row, '$.phase'), '') AS phase, key AS name, json_extract(row, '$.step') AS step,
    CASE json_extract(value, '$."$float"') WHEN 'inf' THEN 9e999 WHEN '-inf' THEN -9e999 END AS value
FROM history, json_each(row)
WHERE CASE type WHEN 'object' THEN json_extract(value, '$."$float"') END IN ('nan', 'inf', '-inf')
UNION ALL
SELECT
    run, stage, coalesce(json_extract(row, '$.set'), ''), coalesce(json_extract(row, '$.phase'), ''), key,
    json_extract(row, '$.step'), value
FROM history, json_each(row) WHERE type IN ('integer', 'real', 'true', 'false')
    AND key NOT IN ('epoch', 'step', 'phase', 'partial', 'seconds', 'standalone', 'set');
CREATE VIEW metrics AS             -- pandas.read_sql("SELECT * FROM metrics WHERE latest", connection)
WITH newest(part) AS (SELECT max(id) FROM runs),
measured(part, stage, datasource, phase, name, written, step, value) AS (
    SELECT run, stage, datasource, phase, name, step, coalesce(own_step, step), value
    FROM scalars JOIN series ON series.id = series
    UNION ALL
    SELECT run, stage, datasource, phase, name, NULL, step, value FROM history_numbers
)
SELECT
    runs.run,
    CASE phase WHEN '' THEN '' ELSE phase || '/' END || CASE stage
        WHEN 'train_step_batch' THEN
            'batch/' || name || CASE WHEN datasource IN ('', 'train') THEN '' ELSE '/' || datasource END
        WHEN 'train_step_epoch' THEN 'epoch/' || name
        WHEN 'eval' THEN 'eval/' || datasource || '/' || name
        ELSE name END AS series,
    measured.step,
    value,
    -- A history is that of the newest part alone; of other rows all count that its chain has.
    CASE WHEN written IS NULL THEN measured.part = newest.part
        ELSE counting.part IS NOT NULL AND written <= coalesce(until, written) END AS latest
FROM measured JOIN newest JOIN runs ON runs.id = measured.part
LEFT JOIN counting ON counting.run = newest.part AND counting.part = measured.part;
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


USUAL_DATA: Final = ("train", "")
"""What the data of batches is called if it has no name of its own."""


def tag_of(series: Series) -> str:
    """Return the text of a series: where it was measured, and its name; a hook's own metric has only its name.

    The view ``metrics`` has the same texts.

    >>> tag_of(Series("loss", "train_step_batch", "train")), tag_of(Series("accuracy", "eval", "valid"))
    ('batch/loss', 'eval/valid/accuracy')
    >>> tag_of(Series("loss", "train_step_epoch", phase="head")), tag_of(Series("grad_norm"))
    ('head/epoch/loss', 'grad_norm')
    """
    name, stage, datasource, phase = series
    if stage == BATCHES:
        parts = ["batch", name, *([] if datasource in USUAL_DATA else [datasource])]
    elif stage == EPOCHS:
        parts = ["epoch", name]
    else:
        parts = ["eval", datasource, name] if stage == EVALUATIONS else [name]
    return "/".join([phase, *parts] if phase else parts)


class RunPart(NamedTuple):
    """A part of a run, which never goes back to an earlier step.

    Attributes:
        id: its number; a later part has a larger one.
        run: the run_id of the TrainManager.
        began: seconds since 1970.
        resumes: the id of the part whose rows it goes on from; None if a training begins.
        step: the last step of that part that counts for this one; None if all of its rows do.
    """

    id: int
    run: str
    began: float
    resumes: int | None
    step: int | None


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
    for statement in filter(str.strip, SCHEMA.split(";\n")):
        connection.execute(statement)
    connection.execute(f"PRAGMA application_id={APPLICATION_ID}")
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
    if version != VERSION:
        what = f"{quote_path(path)} has version {version} of the metrics, but this train_manager knows {VERSION}"
        cure = "use the version of train_manager that wrote it, or give another train_dir"
        raise InputError(what, name="train_dir", cure=cure)


def _pragma(connection: sqlite3.Connection, name: str) -> int:
    (value,) = connection.execute(f"PRAGMA {name}").fetchone()
    return int(value)
