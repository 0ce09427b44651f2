"""The metrics in ``metrics.sqlite``, read without torch and without a wait, also while a run writes them."""

from __future__ import annotations

import heapq
import math
import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias, final

from train_manager.files.atomic import quote_path
from train_manager.runs.store.rows import (
    Histogram,
    StoredArray,
    StoredFile,
    StoredRow,
    item_of,
    metrics_in,
    row_of_text,
)
from train_manager.runs.store.schema import (
    EPOCHS,
    EVALUATIONS,
    FILE,
    RunPart,
    Series,
    database_uri,
    is_empty,
    require_ours,
)
from train_manager.telling.errors import InputError

if TYPE_CHECKING:
    from pandas import DataFrame

AT_ONCE: Final = 10_000  # rows that are read together


ScalarRow: TypeAlias = tuple[Series, int, int, float, float]
"""Series, step, epoch, time and value: a StoredRow as a plain tuple, because there are many of them."""


class Scalars(NamedTuple):
    """The scalars of a series, in the order in which they were measured."""

    steps: list[int]
    values: list[float]
    times: list[float]


@final
class MetricReader:
    """Read the metrics of a training; each call sees one state of the file.

    >>> import tempfile
    >>> from train_manager.extensions import MetricStore
    >>> from train_manager.testing import tiny_manager
    >>> folder = tempfile.mkdtemp()
    >>> result = tiny_manager(MetricStore(), epochs=2, train_dir=folder).train()
    >>> metrics = MetricReader(folder)
    >>> [series.stage for series in metrics.series() if series.name == "loss"]
    ['eval', 'train_step_batch', 'train_step_epoch']
    >>> [(steps, values)] = [found[:2] for found in metrics.scalars("loss", "train_step_epoch").values()]
    >>> steps, [round(value, 3) for value in values]
    ([3, 6], [0.7, 0.676])

    Where a method has the argument ``run``, it is a run_id: what counts for that run are its own rows, and those of the
    runs that it resumes, up to the step at which it did. By default it is the run that began last.

    Args:
        path: the file ``metrics.sqlite``, or the ``train_dir`` that it is in.

    Raises:
        InputError: there is none, or it is not one of these.
    """

    def __init__(self, path: Path | str) -> None:
        given = Path(path)
        self.path = given / FILE if given.is_dir() else given
        if not self.path.is_file():
            what = f"{quote_path(given)} has no metrics" if given.is_dir() else f"there is no file {quote_path(given)}"
            cure = "give the train_dir of a training with the extension MetricStore"
            raise InputError(what, name="path", cure=cure)

    def runs(self) -> list[RunPart]:
        """Return the parts of all runs, the oldest first."""
        with self.reading() as connection:
            rows = connection.execute("SELECT id, run, began, resumes, step FROM runs ORDER BY id")
            return [RunPart(*row) for row in rows]

    def series(self) -> list[Series]:
        """Return all series, sorted by name."""
        names = "SELECT name, stage, datasource, phase FROM"
        sql = f"{names} series UNION {names} history_numbers ORDER BY name, stage"
        with self.reading() as connection:
            return [Series(*row) for row in connection.execute(sql)]

    def scalars(
        self, name: str | None = None, stage: str | None = None, run: str | None = None
    ) -> dict[Series, Scalars]:
        """Return the scalars of each series.

        Args:
            name: of the series; None for all.
            stage: where they were measured; None for all.
            run: the run_id of a run; None for the one that began last.
        """
        found: dict[Series, Scalars] = {}
        for series, step, _, time, value in self._scalars(name, stage, run):
            into = found.get(series)
            if into is None:
                into = found[series] = Scalars([], [], [])
            into.steps.append(step)
            into.values.append(value)
            into.times.append(time)
        return found

    def histograms(
        self, name: str | None = None, run: str | None = None
    ) -> dict[Series, list[tuple[int, list[float], list[int]]]]:
        """Return step, edges and counts of each histogram."""
        found: dict[Series, list[tuple[int, list[float], list[int]]]] = {}
        for row in self._items("histogram", name, run):
            if isinstance(row.value, Histogram):
                found.setdefault(row.series, []).append((row.step, *row.value))
        return found

    def arrays(self, name: str | None = None, run: str | None = None) -> dict[Series, list[StoredArray]]:
        """Return the arrays of each series, in the order in which they were written."""
        found: dict[Series, list[StoredArray]] = {}
        for row in self._items("array", name, run):
            if isinstance(row.value, StoredArray):
                found.setdefault(row.series, []).append(row.value)
        return found

    def texts(self, name: str | None = None, run: str | None = None) -> dict[Series, list[tuple[int, str]]]:
        """Return step and text of each text."""
        found: dict[Series, list[tuple[int, str]]] = {}
        for row in self._items("text", name, run):
            found.setdefault(row.series, []).append((row.step, str(row.value)))
        return found

    def files(self, name: str | None = None, run: str | None = None) -> dict[Series, list[tuple[int, str, int, str]]]:
        """Return step, path, size and SHA-256 of each file."""
        found: dict[Series, list[tuple[int, str, int, str]]] = {}
        for row in self._items("file", name, run):
            if isinstance(row.value, StoredFile):
                found.setdefault(row.series, []).append((row.step, *row.value))
        return found

    def history(self, run: str | None = None) -> dict[str, list[dict[str, Any]]]:
        """Return the rows of ``tm.history`` as they were: "epochs" and "evaluations"."""
        with self.reading() as connection:
            rows = [(stage, row) for stage, row, _ in history_of(connection, newest_part(connection, run))]
        return {
            name: [row for of, row in rows if of == stage]
            for name, stage in (("epochs", EPOCHS), ("evaluations", EVALUATIONS))
        }

    def last_step(self, run: str | None = None) -> int:
        """Return the last step that has a metric; 0 if there is none."""
        with self.reading() as connection:
            part = newest_part(connection, run)
            sql = (
                "SELECT max(min(step, coalesce(until, step))) FROM scalars "
                "JOIN counting ON part = scalars.run WHERE counting.run = ?"
            )
            (last,) = connection.execute(sql, (part,)).fetchone()
            steps = [row["step"] for _, row, _ in history_of(connection, part)]
        return int(max([last or 0, *steps]))

    def last_time(self, run: str) -> float | None:
        """Return when a run has stored its last metric, in seconds since 1970; None if it has none."""
        sql = (
            "SELECT max(time) FROM (SELECT run, time FROM scalars UNION ALL SELECT run, time FROM history) AS rows "
            "JOIN runs ON runs.id = rows.run WHERE runs.run = ?"
        )
        with self.reading() as connection:
            (time,) = connection.execute(sql, (run,)).fetchone()
        return None if time is None else float(time)

    def to_pandas(self, name: str | None = None, stage: str | None = None, run: str | None = None) -> DataFrame:
        """Return a data frame with a row for each scalar (``pip install "train-manager[pandas]"``).

        Raises:
            ImportError: pandas is not installed.
        """
        try:
            import pandas
        except ImportError as error:
            raise ImportError(f'to_pandas needs pandas ({error}): pip install "train-manager[pandas]"') from error
        rows = [(*series, *rest) for series, *rest in self._scalars(name, stage, run)]
        columns = [*Series._fields, *StoredRow._fields[1:]]
        frame: DataFrame = pandas.DataFrame.from_records(rows, columns=columns)
        return frame

    def rows(self, run: str | None = None) -> Iterator[StoredRow]:
        """Yield all rows that count, in the order in which they were written; metrics of whole epochs only."""
        with self.reading() as connection:
            part = newest_part(connection, run)
            several = (
                map(StoredRow._make, scalars_of(connection, part)),
                items_of(connection, part),
                told_of_history(connection, part),
            )
            yield from heapq.merge(*several, key=lambda row: row.time)

    # ---- how it is read ------------------------------------------------------------------------------------------

    def _scalars(self, name: str | None, stage: str | None, run: str | None) -> Iterator[ScalarRow]:
        """Yield the numbers that count: of batches and hooks, then of epochs and evaluations."""
        with self.reading() as connection:
            part = newest_part(connection, run)
            if stage not in (EPOCHS, EVALUATIONS):
                yield from scalars_of(connection, part, name, stage)
            for of, row, time in history_of(connection, part):
                if stage in (None, of):
                    for series, value in metrics_in(of, row):
                        if name in (None, series.name):
                            yield series, row["step"], row["epoch"], time, value

    def _items(self, kind: str, name: str | None, run: str | None) -> Iterator[StoredRow]:
        with self.reading() as connection:
            yield from items_of(connection, newest_part(connection, run), kind, name)

    @contextmanager
    def reading(self) -> Iterator[sqlite3.Connection]:
        """Open the file for the time of a ``with`` block, which sees one state of it.

        Raises:
            InputError: it is of another program or version, empty, or damaged.
        """
        try:
            with open_to_read(self.path) as connection:
                if is_empty(connection):
                    what = f"{quote_path(self.path)} has nothing in it yet"
                    raise InputError(what, name="path", cure="read it again once its run has begun")
                require_ours(connection, self.path)
                connection.execute("BEGIN")  # all queries of the transaction see one state of the file
                yield connection
        except sqlite3.DatabaseError as error:
            what = f"{quote_path(self.path)} cannot be read: {error}"
            raise InputError(what, name="path", cure="is it damaged, or of another program?") from error


def newest_part(connection: sqlite3.Connection, run: str | None) -> int | None:
    """Return the id of the part that began last, of a run or of all; None if there is none."""
    where, given = ("", ()) if run is None else ("WHERE run = ?", (run,))
    (found,) = connection.execute(f"SELECT max(id) FROM runs {where}", given).fetchone()
    return None if found is None else int(found)


def history_of(connection: sqlite3.Connection, part: int | None) -> Iterator[tuple[str, dict[str, Any], float]]:
    """Yield stage, row and time of the history of a part, which is complete in itself."""
    sql = "SELECT stage, row, time FROM history WHERE run = ? ORDER BY stage DESC, number"
    for stage, text, time in connection.execute(sql, (part,)):
        yield stage, row_of_text(text), time


def told_of_history(connection: sqlite3.Connection, part: int | None) -> Iterator[StoredRow]:
    """Yield the numbers of a history in the order of their times, without those of parts of epochs."""
    for stage, row, time in sorted(history_of(connection, part), key=lambda found: found[2]):
        if not row.get("partial"):
            for series, value in metrics_in(stage, row):
                yield StoredRow(series, row["step"], row["epoch"], time, value)


def scalars_of(
    connection: sqlite3.Connection, part: int | None, name: str | None = None, stage: str | None = None
) -> Iterator[ScalarRow]:
    """Yield the scalars of batches and hooks that count for a part, in the order of writing."""
    series, wanted = wanted_of(connection, name, stage)
    sql = (
        f"SELECT series, coalesce(own_step, scalars.step), epoch, time, value {counting('scalars')} "
        f"AND series IN ({wanted}) ORDER BY scalars.rowid"
    )
    for id_, step, epoch, time, value in fetched(connection.execute(sql, (part,))):
        yield series[id_], step, epoch, time, math.nan if value is None else value


def items_of(
    connection: sqlite3.Connection, part: int | None, kind: str | None = None, name: str | None = None
) -> Iterator[StoredRow]:
    """Yield the items that count for a part, in the order of writing."""
    series, wanted = wanted_of(connection, name, None)
    of_kind, given = ("", ()) if kind is None else (" AND kind = ?", (kind,))
    sql = (
        "SELECT series, labels, kind, form, content, coalesce(own_step, items.step), epoch, time "
        f"{counting('items')} AND series IN ({wanted}){of_kind} ORDER BY items.rowid"
    )
    sql = sql.replace("WHERE", "JOIN series ON series.id = series WHERE", 1)
    for id_, labels, of, form, content, step, epoch, time in fetched(connection.execute(sql, (part, *given))):
        yield StoredRow(series[id_], step, epoch, time, item_of(of, form, content, labels, step, epoch, time))


def counting(table: str) -> str:
    """Return the end of a query of a table, for the rows that count for a part.

    The written step decides, not the one that a hook has given.
    """
    # CROSS JOIN lets SQLite walk over the table once, and not once for each part.
    where = f"counting.run = ? AND {table}.step <= coalesce(until, {table}.step)"
    return f"FROM {table} CROSS JOIN counting ON part = {table}.run WHERE {where}"


def wanted_of(connection: sqlite3.Connection, name: str | None, stage: str | None) -> tuple[dict[int, Series], str]:
    """Return the series of a name and a stage by their ids, and the ids as text; None is any."""
    rows = connection.execute("SELECT id, name, stage, datasource, phase FROM series")
    found = {id_: Series(*names) for id_, *names in rows}
    wanted = {id_: of for id_, of in found.items() if name in (None, of.name) and stage in (None, of.stage)}
    return wanted, ", ".join(map(str, wanted))


def fetched(cursor: sqlite3.Cursor) -> Iterator[Any]:
    """Yield the rows of a query, read in pieces."""
    while rows := cursor.fetchmany(AT_ONCE):
        yield from rows


@contextmanager
def open_to_read(path: Path) -> Iterator[sqlite3.Connection]:
    """Open a database for reading; also in a folder in which nothing may be written.

    There SQLite cannot make the files that a log needs. A run that has ended in order leaves no log, so the file can be
    opened by itself; if a run was killed, the file and its log are copied, and the copy is read.
    """
    with closing(connect_to_read(database_uri(path, "ro"))) as connection:
        try:
            # `connect` opens no file yet: the first query fails where nothing may be written.
            connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
            can_read = True
        except sqlite3.OperationalError:
            can_read = False
        if can_read:
            yield connection
            return
    with TemporaryDirectory(prefix="train-manager-") as folder:
        copy = Path(folder, FILE)
        # The file is copied last: rows that a run moves from the log into the file meanwhile are in one of the copies.
        for end in ("-wal", ""):
            source = path.with_name(path.name + end)
            if source.exists():
                shutil.copyfile(source, copy.with_name(copy.name + end))
        with closing(connect_to_read(database_uri(copy, "rw"))) as connection:
            yield connection


def connect_to_read(uri: str) -> sqlite3.Connection:
    """Open a database that another process may write."""
    return sqlite3.connect(uri, uri=True, timeout=5.0, isolation_level=None)
