"""Rows as they go into the tables of ``metrics.sqlite``: which segment they are of, and which rows they replace.

All of it runs inside of a transaction that ``metric_database.py`` has opened.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from time import time
from typing import Any, Final, NamedTuple, Protocol, final

from train_manager.metrics.history_rows import metrics_of
from train_manager.runs.record.metric_items import Begin, Blob, HistoryRow, Item, Labels, Other, Row, Scalar
from train_manager.runs.record.metric_schema import COLUMNS, EPOCHS, EVALUATIONS, HISTORY, LATEST, TABLES, Series

LARGEST: Final = 1023  # bits of the largest whole number that `float` converts
TOGETHER: Final = 150  # scalars in one statement: 900 variables, of the 999 that old versions of SQLite allow
INSERT: Final = "INSERT INTO scalars(series, segment, step, epoch, time, value) VALUES "
ONE: Final = "(?, ?, ?, ?, ?, ?)"
MANY: Final = INSERT + ", ".join([ONE] * TOGETHER)


class Numbers(Protocol):
    """Makes numbers of values, which may be tensors."""

    def __call__(self, values: Sequence[Any]) -> Sequence[float]:
        """Return the values of scalars."""

    def blobs(self, blobs: Sequence[tuple[str, Any]]) -> Sequence[bytes]:
        """Return numbers of a kind ("f", "d" or "q") as bytes, the lowest byte first."""


class WrittenRow(NamedTuple):
    """A row of the history in the file."""

    text: str  # the row as JSON
    id: int  # of its row in the table texts
    first_scalar: int  # ids of its metrics in the table scalars, from this one
    last_scalar: int  # to this one


@final
class MetricRows:
    """The rows that a training writes, with the ids of earlier rows that it refers to.

    Args:
        run: the run_id of the segments.
        numbers: makes numbers of values.

    Attributes:
        series: the series by their numbers, which scalars give in place of their names.
    """

    def __init__(self, run: str, numbers: Numbers) -> None:
        self.series: list[Series] = []
        self._run, self._numbers = run, numbers
        self._last_step = 0
        self.forget()

    def forget(self) -> None:
        """Begin anew, in another file."""
        self._begins: Begin | None = None  # a segment that is made with its first row, so that none stays empty
        self._segment: int | None = None  # the id of the segment that rows go into
        self._training: int | None = None  # the id of the training that the segment belongs to
        self._ids: list[int] = []  # ids in the file of `series`, by their numbers
        self._rows: dict[str, list[WrittenRow]] | None = None  # the history by stage; None until it is read
        self._labels: dict[int, tuple[str, ...] | None] = {}  # the last labels of each series in the segment

    def write(self, connection: sqlite3.Connection, items: Iterable[Item]) -> None:
        """Write items."""
        # Neighbours of one kind are written together; the order of the items stays.
        for kind, several in groupby(items, type):
            if kind is tuple:
                self._write_scalars(connection, list(several))  # type: ignore[arg-type]
            elif kind is Other:
                self._write_others(connection, list(several))  # type: ignore[arg-type]
            else:
                for item in several:
                    self._begin(item) if isinstance(item, Begin) else self._put_row(connection, item)  # type: ignore[arg-type]

    def name_of(self, item: Item) -> str:
        """Return the name of the series that an item is of."""
        if isinstance(item, Begin | HistoryRow):
            return HISTORY
        return self.series[item.series if isinstance(item, Other) else item[0]].name

    def mark(self) -> dict[str, Any]:
        """Return a copy of the state, with which ``go_back`` undoes a transaction that fails."""
        rows = None if self._rows is None else {stage: list(known) for stage, known in self._rows.items()}
        return {**vars(self), "_ids": list(self._ids), "_rows": rows, "_labels": dict(self._labels)}

    def go_back(self, mark: Mapping[str, Any]) -> None:
        """Restore the state of before a transaction that was rolled back."""
        vars(self).update(mark)

    def claim(self, connection: sqlite3.Connection) -> bool:
        """Begin a segment if another training has begun one meanwhile, or the file has lost ours.

        The last segment of a file decides which training counts, and this training is still running.

        Returns:
            Whether the file has what was written before.
        """
        if self._segment is None or self._begins is not None:
            return True
        segments = connection.execute("SELECT id, run FROM segments ORDER BY id DESC").fetchall()
        ours = (self._segment, self._run)
        if segments[:1] != [ours]:
            known = self._rows or {}
            history = {stage: [json.loads(row.text) for row in rows] for stage, rows in known.items()}
            self._ids = []
            self._begin(Begin(self._last_step, time(), history, self._run))
        return ours in segments

    def _write_scalars(self, connection: sqlite3.Connection, scalars: list[Scalar]) -> None:
        # All tensors at once: a device is waited for once, and not for each number.
        values = self._numbers([scalar[4] for scalar in scalars])
        segment, ids = self._present_segment(connection), self._ids_of_series(connection)
        flat: list[Any] = []
        for (series, step, epoch, at, _), value in zip(scalars, values, strict=True):
            flat += (ids[series], segment, step, epoch, at, value)
        insert(connection, flat)
        self._last_step = scalars[-1][1]

    def _write_others(self, connection: sqlite3.Connection, items: list[Other]) -> None:
        ids, segment = self._ids_of_series(connection), self._present_segment(connection)
        read = iter(self._numbers.blobs([value for item in items for value in item.values if type(value) is Blob]))
        for item in items:
            values = self._numbers(item.values) if item.table == "scalars" else item.values
            stored = [self._column_value(item.series, value, read) for value in values]
            row = (ids[item.series], segment, item.step, item.epoch, item.time, item.own_step, *stored)
            columns = f"series, segment, step, epoch, time, own_step, {COLUMNS[item.table]}"
            connection.execute(f"INSERT INTO {item.table}({columns}) VALUES ({', '.join('?' * len(row))})", row)

    def _column_value(self, series: int, value: Any, read: Iterator[bytes]) -> Any:
        """Return the value of a column: bytes for a Blob, JSON for Labels if they are new, else the value itself."""
        if type(value) is Blob:
            return next(read)
        if type(value) is not Labels:
            return value
        before, self._labels[series] = self._labels.get(series), value.names
        return None if value.names == before else json.dumps(value.names or ())

    def _ids_of_series(self, connection: sqlite3.Connection) -> list[int]:
        for series in self.series[len(self._ids) :]:
            self._ids.append(id_of(connection, series))
        return self._ids

    # ---- segments ------------------------------------------------------------------------------------------------

    def _present_segment(self, connection: sqlite3.Connection) -> int:
        begin, self._begins = self._begins, None
        if begin is not None or self._segment is None:
            self._make_segment(connection, begin or Begin(LATEST, time(), {}))
        assert self._segment is not None, "it has just been made"
        return self._segment

    def _begin(self, begin: Begin) -> None:
        self._begins = begin
        if begin.from_step != LATEST:
            self._last_step = max(begin.from_step, 0)

    def _make_segment(self, connection: sqlite3.Connection, begin: Begin) -> None:
        # LATEST marks rows that are written without a begin, such as by a hook outside of runs: nothing is superseded.
        cut, training = begin.from_step, self._goes_on_in(connection, begin)
        sql = "INSERT INTO segments(run, began, from_step) VALUES (?, ?, ?)"
        from_step = -1 if training is None and cut != LATEST else cut
        self._segment = connection.execute(sql, (self._run, begin.time, from_step)).lastrowid or 0
        self._training = training or self._segment
        connection.execute("UPDATE segments SET training = ? WHERE id = ?", (self._training, self._segment))
        self._rows, self._labels = None, {}
        for stage, rows in begin.history.items():
            known = self._known_rows(connection)[stage]
            for number, row in enumerate(rows):
                # Rows that the file has already stay as they are; a resume often finds all of them.
                if number >= len(known) or known[number].text != text_of_row(row):
                    self._put_row(connection, HistoryRow(stage, number, row, begin.time))
            delete(connection, known[len(rows) :])
            del known[len(rows) :]

    def _goes_on_in(self, connection: sqlite3.Connection, begin: Begin) -> int | None:
        """Return the id of the training that continues, and drop its rows of later steps; None if a training begins."""
        cut, run = begin.from_step, None if begin.from_step == LATEST else begin.goes_on_from
        where, given = ("", ()) if run is None else ("WHERE run = ?", (run,))
        found = connection.execute(f"SELECT training FROM segments {where} ORDER BY id DESC LIMIT 1", given).fetchone()
        if found is None or cut < 0:
            return None
        (training,) = found
        same = None if run is not None or cut == LATEST else shares_history(connection, begin, training)
        if same is False:
            return None
        # For certain the same training: the steps after the checkpoint are trained again, so their rows are deleted.
        if run is not None or same:
            segments = "SELECT id FROM segments WHERE training = ?"
            for table in TABLES:
                connection.execute(f"DELETE FROM {table} WHERE step > ? AND segment IN ({segments})", (cut, training))
        elif cut != LATEST:
            # Not certain: the rows are only marked, so that a reader can still ask for superseded ones.
            later = "training = ? AND (until_step IS NULL OR until_step > ?)"
            connection.execute(f"UPDATE segments SET until_step = ? WHERE {later}", (cut, training, cut))
        return int(training)

    # ---- the history ---------------------------------------------------------------------------------------------

    def _known_rows(self, connection: sqlite3.Connection) -> dict[str, list[WrittenRow]]:
        if self._rows is None:
            stages = (EPOCHS, EVALUATIONS)
            self._rows = {stage: list(written_rows(connection, stage, self._training)) for stage in stages}
        return self._rows

    def _put_row(self, connection: sqlite3.Connection, item: HistoryRow) -> None:
        """Write a row as it is, as a text, and each of its metrics as a scalar."""
        segment = self._present_segment(connection)
        known = self._known_rows(connection)[item.stage]
        text = text_of_row(item.row)
        if item.number is not None:
            # A row whose predecessors were removed stays as it is: a follower would get the metrics of a new row again.
            moved = next((at for at in range(item.number, len(known)) if known[at].text == text), None)
            delete(connection, known[item.number : moved])
            del known[item.number : moved]
            if moved is not None:
                return
        place = (segment, item.row["step"], item.row["epoch"], item.time)
        ids = [self._put_metric(connection, item, place, name) for name in numbers_of(item.row)]
        first, last = min(ids, default=0), max(ids, default=0)
        whole = f'{{"scalars": [{first}, {last}], "row": {text}}}'
        sql = "INSERT INTO texts(series, segment, step, epoch, time, text) VALUES (?, ?, ?, ?, ?, ?)"
        made = connection.execute(sql, (id_of(connection, Series(HISTORY, item.stage)), *place, whole))
        known.append(WrittenRow(text, made.lastrowid or 0, first, last))

    def _put_metric(self, connection: sqlite3.Connection, item: HistoryRow, place: tuple[Any, ...], name: str) -> int:
        series = Series(name, item.stage, item.row.get("set", ""), item.row.get("phase") or "")
        values = (id_of(connection, series), *place, float(item.row[name]))
        return connection.execute(f"{INSERT}{ONE}", values).lastrowid or 0


def delete(connection: sqlite3.Connection, rows: Iterable[WrittenRow]) -> None:
    """Delete rows of the history that were replaced, and their metrics."""
    for row in rows:
        connection.execute("DELETE FROM texts WHERE id = ?", (row.id,))
        connection.execute("DELETE FROM scalars WHERE id BETWEEN ? AND ?", (row.first_scalar, row.last_scalar))


def id_of(connection: sqlite3.Connection, series: Series) -> int:
    """Return the id of a series; it is made if it is new."""
    series = Series(*map(storable, series))
    sql = "SELECT id FROM series WHERE name = ? AND stage = ? AND datasource = ? AND phase = ?"
    found = connection.execute(sql, series).fetchone()
    if found is None:
        made = connection.execute("INSERT INTO series(name, stage, datasource, phase) VALUES (?, ?, ?, ?)", series)
        return int(made.lastrowid or 0)
    return int(found[0])


def storable(text: str) -> str:
    """Return a text without halves of characters, which SQLite refuses.

    >>> storable("\\ud83d"), storable("ü")
    ('\\\\ud83d', 'ü')
    """
    return text.encode("utf-8", "backslashreplace").decode()


def insert(connection: sqlite3.Connection, flat: list[Any]) -> None:
    """Insert scalars, many with each statement."""
    # Not `executemany`: it releases the GIL for each row, and waits for it up to 5 ms while the training runs Python.
    width = 6 * TOGETHER
    whole = len(flat) - len(flat) % width
    for start in range(0, whole, width):
        connection.execute(MANY, flat[start : start + width])
    if rest := flat[whole:]:
        connection.execute(INSERT + ", ".join([ONE] * (len(rest) // 6)), rest)


def numbers_of(row: Row) -> list[str]:
    """Return the names of the metrics of a row that are numbers."""
    return [name for name, value in metrics_of(row).items() if is_number(value)]


def is_number(value: Any) -> bool:
    """Return whether a value is a number that a float can be made of."""
    return isinstance(value, float) or (isinstance(value, int) and value.bit_length() <= LARGEST)


def text_of_row(row: Row) -> str:
    """Return a row of the history as JSON, whose numbers come back to the bit."""
    return json.dumps(dict(row), default=plain)


def plain(value: Any) -> Any:
    """Return a value that JSON lacks in another form: an array or a tensor as a list or number, else its text."""
    return value.tolist() if hasattr(value, "tolist") else repr(value)


def shares_history(connection: sqlite3.Connection, begin: Begin, training: int) -> bool | None:
    """Return whether the file has rows of a given history; None if the file or the history has no rows to compare."""
    given = {text_of_row(row) for rows in begin.history.values() for row in rows if row["step"] > 0}
    stages = (EPOCHS, EVALUATIONS)
    written = {row.text for stage in stages for row in written_rows(connection, stage, training)}
    known = {text for text in written if 0 < json.loads(text)["step"] <= begin.from_step}
    return bool(given & known) if given and known else None


def written_rows(connection: sqlite3.Connection, stage: str, training: int | None) -> Iterable[WrittenRow]:
    """Yield the rows of the history of a training that count, in their order."""
    sql = (
        "SELECT texts.id, text FROM texts JOIN series ON series.id = series JOIN segments ON segments.id = segment "
        "WHERE name = ? AND stage = ? AND training = ? AND step <= coalesce(until_step, step) ORDER BY texts.id"
    )
    for id_, text in connection.execute(sql, (HISTORY, stage, training)):
        found: Mapping[str, Any] = json.loads(text)
        yield WrittenRow(text_of_row(found["row"]), id_, *found["scalars"])
