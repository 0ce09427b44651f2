"""What has come into ``metrics.sqlite`` since it was read last, for a follower of a run."""

from __future__ import annotations

import json
import math
import sqlite3
from collections.abc import Mapping
from typing import Any, NamedTuple

from train_manager.runs.record.metric_blobs import Labelled, StoredArray, edges_and_counts, shape_and_values
from train_manager.runs.record.metric_schema import COLUMNS, EPOCHS, HISTORY, LATEST, TABLES, Series, has_table
from train_manager.runs.record.metric_segments import Segment, segments_of


class NewSegment(NamedTuple):
    """A segment that has begun.

    Attributes:
        run: the run_id of the training that writes it.
        began: seconds since 1970.
        from_step: the last step that it builds on: earlier rows of later steps do not count any more; None if all
            earlier rows still count.
    """

    id: int
    run: str
    began: float
    from_step: int | None


class NewRow(NamedTuple):
    """A row that counts.

    Attributes:
        run: the run_id of the training that has written it.
        segment: the id of its segment.
        step: the step that it belongs to.
        written_in: the step in which it was written, to which ``from_step`` applies; it differs from ``step`` if a hook
            has given ``step``.
        value: a number, (edges, counts), a text, (path, size, sha256), or a StoredArray.
    """

    id: int
    series: Series
    run: str
    segment: int
    step: int
    written_in: int
    epoch: int
    time: float
    value: Any


class News(NamedTuple):
    """What is new.

    Attributes:
        segments: those that have begun; they come before the rows.
        rows: by the tables "scalars", "histograms", "texts", "files" and "arrays".
        ids: the last id of each table that was read, for the next call.
        is_anew: whether the file was replaced, so that all of it is new.
        has_more: whether a table has more rows that are new.
    """

    segments: list[NewSegment]
    rows: dict[str, list[NewRow]]
    ids: dict[str, int]
    is_anew: bool
    has_more: bool


def news_of(connection: sqlite3.Connection, before: Mapping[str, int], run: str | None, most: int) -> News:
    """Return the segments and rows after these ids, of one run or of all.

    Args:
        connection: a transaction that is open.
        before: the ids of the news before.
        run: a run_id; None for all.
        most: so many rows of a table are read.
    """
    (newest,) = connection.execute("SELECT coalesce(max(id), 0) FROM segments").fetchone()
    is_anew = before.get("segments", 0) > newest  # segments are never deleted, so this is another file
    ids = dict.fromkeys(("segments", *TABLES), 0) | ({} if is_anew else dict(before))
    # An id is noted as read even if its row is left out, so that no call reads it again.
    segments = new_segments(connection, ids["segments"], run)
    ids["segments"] = newest
    counting = segments_of(connection, run)
    names = connection.execute("SELECT id, name, stage, datasource, phase FROM series")
    series = {id_: Series(*of) for id_, *of in names}
    rows: dict[str, list[NewRow]] = {table: [] for table in TABLES}
    has_more = False
    for table in TABLES:
        if has_table(connection, table):
            rows[table], ids[table], is_cut = new_rows(connection, table, ids[table], series, counting, most)
            has_more = has_more or is_cut
    return News(segments, rows, ids, is_anew, has_more)


def new_segments(connection: sqlite3.Connection, after: int, run: str | None) -> list[NewSegment]:
    """Return the segments that have begun, except segments of version 2 whose rows were all replaced."""
    sql = "SELECT id, run, began, from_step FROM segments WHERE id > ? AND from_step NOT NULL ORDER BY id"
    found = [NewSegment(*row) for row in connection.execute(sql, (after,)) if run in (None, row[1])]
    return [one._replace(from_step=None) if one.from_step == LATEST else one for one in found]


def new_rows(
    connection: sqlite3.Connection,
    table: str,
    after: int,
    series: Mapping[int, Series],
    counting: Mapping[int, Segment],
    most: int,
) -> tuple[list[NewRow], int, bool]:
    """Return the rows of a table that count, the last id that was read, and whether there are more."""
    place = "id, series, segment, coalesce(own_step, step), step, epoch, time"
    sql = f"SELECT {place}, {COLUMNS[table]} FROM {table} WHERE id > ? ORDER BY id LIMIT ?"
    read = connection.execute(sql, (after, most)).fetchall()
    labels = Labelled(connection)
    # An epoch that was left before its end has its metrics replaced later: a follower gets only the final ones.
    has_epochs = table == "scalars" and any(series[row[1]].stage == EPOCHS for row in read)
    unfinished = of_parts_of_epochs(connection) if has_epochs else set()
    found = []
    for id_, of, segment, step, written_in, epoch, time, *columns in read:
        until = counting.get(segment)
        if until is None or written_in > until.until or (table == "texts" and series[of].name == HISTORY):
            continue
        if id_ in unfinished:
            continue
        value: Any
        if table == "arrays":
            shape, written, numbers = columns
            names = labels.of(segment, of, written, id_)
            value = StoredArray(step, epoch, time, *shape_and_values(shape, numbers), names)
        else:
            value = value_of(table, columns)
        found.append(NewRow(id_, series[of], until.run, segment, step, written_in, epoch, time, value))
    return found, read[-1][0] if read else after, len(read) == most


def of_parts_of_epochs(connection: sqlite3.Connection) -> set[int]:
    """Return the ids of the scalars of epochs that were left before their ends."""
    # LIKE finds candidates fast; JSON then tells whether the row itself is partial.
    sql = (
        "SELECT text FROM texts JOIN series ON series.id = series "
        """WHERE name = ? AND stage = ? AND text LIKE '%"partial": true%'"""
    )
    rows = [json.loads(text) for (text,) in connection.execute(sql, (HISTORY, EPOCHS))]
    parts = [found["scalars"] for found in rows if found["row"].get("partial")]
    return {id_ for first, last in parts for id_ in range(first, last + 1)}


def value_of(table: str, columns: list[Any]) -> Any:
    """Return the value of a row of a number, a histogram, a text or a file."""
    if table == "scalars":  # SQLite stores nan as NULL
        return math.nan if columns[0] is None else columns[0]
    if table == "histograms":
        return edges_and_counts(*columns)
    return columns[0] if table == "texts" else tuple(columns)
