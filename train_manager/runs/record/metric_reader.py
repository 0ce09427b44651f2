"""The metrics in ``metrics.sqlite``, read without torch and without a wait, also while a run writes them."""

from __future__ import annotations

import json
import shutil
import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, NamedTuple, final

from train_manager.files.atomic import quote_path
from train_manager.runs.record.metric_blobs import Labelled, StoredArray, edges_and_counts, shape_and_values
from train_manager.runs.record.metric_news import News, news_of
from train_manager.runs.record.metric_schema import (
    EPOCHS,
    EVALUATIONS,
    FILE,
    HISTORY,
    Series,
    database_uri,
    has_table,
    is_empty,
    require_ours,
)
from train_manager.runs.record.metric_segments import segments_of
from train_manager.runs.record.metric_stretches import Stretch, stretches_of
from train_manager.telling.errors import InputError
from train_manager.validation import require_count

if TYPE_CHECKING:
    from pandas import DataFrame


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

    def series(self) -> list[Series]:
        """Return all series, sorted by name."""
        with self._reading() as connection:
            names = "SELECT name, stage, datasource, phase FROM series WHERE name != ? ORDER BY name, stage, id"
            return [Series(*row) for row in connection.execute(names, (HISTORY,))]

    def scalars(
        self, name: str | None = None, stage: str | None = None, superseded: bool = False, run: str | None = None
    ) -> dict[Series, Scalars]:
        """Return the scalars of each series.

        Args:
            name: of the series; None for all.
            stage: where they were measured; None for all.
            superseded: also those of earlier trainings in the folder.
            run: the run_id of a training: what it has measured, superseded only by itself; None for what counts now.
        """
        found: dict[Series, Scalars] = {}
        last, into = None, Scalars([], [], [])
        for series, _, step, _, time, value, _ in self._rows("scalars", "value", name, stage, superseded, run):
            if series != last:
                last, into = series, found.setdefault(series, Scalars([], [], []))
            into.steps.append(step)
            into.values.append(float("nan") if value is None else value)
            into.times.append(time)
        return found

    def stretches(
        self, most: int = 1500, name: str | None = None, stage: str | None = None, run: str | None = None
    ) -> dict[Series, list[Stretch]]:
        """Return each series in a few stretches of steps, without superseded rows.

        SQLite makes them, many times faster than ``scalars`` reads each value; a spike of one step is the highest value
        of its stretch. A learning rate and a batch size hold from their step until the next one: read them with
        ``scalars``.

        Args:
            most: stretches of a series; each is of as many steps.
            name: of the series; None for all.
            stage: where they were measured; None for all.
            run: the run_id of a training: what it has measured, superseded only by itself; None for what counts now.

        Raises:
            InputError: ``most`` is not a number of at least 1.
        """
        require_count(most, "most", at_least=1)
        with self._reading() as connection:
            # The temporary tables must not need a folder that can be written.
            connection.execute("PRAGMA temp_store=MEMORY")
            connection.execute("BEGIN")  # all queries of the transaction see one state of the file
            return stretches_of(connection, wanted_of(connection, name, stage), segments_of(connection, run), most)

    def since(self, ids: Mapping[str, int] | None = None, run: str | None = None, most: int = 100_000) -> News:
        """Return the news since an earlier call: first the segments that have begun, then the rows that count.

        Repeated calls return each row that counts once, also through resumes. The ``from_step`` of a segment is the
        step to which its resume has gone back. An epoch that was left before its end has no metrics here until it is
        whole, because they are replaced as it is trained further.

        >>> import tempfile
        >>> from train_manager.extensions import MetricStore
        >>> from train_manager.testing import tiny_manager
        >>> folder = tempfile.mkdtemp()
        >>> tm = tiny_manager(MetricStore(), train_dir=folder)
        >>> result = tm.train()
        >>> reader = MetricReader(folder)
        >>> news = reader.since()
        >>> result = tm.train_steps(1)
        >>> {row.step for row in reader.since(news.ids).rows["scalars"]}
        {4}

        Args:
            ids: of the news before; None for all that there is.
            run: the run_id of a training: what it has measured, superseded only by itself; None for all.
            most: rows of a table at once; ``has_more`` is True if there are more.
        """
        require_count(most, "most", at_least=1)
        with self._reading() as connection:
            connection.execute("BEGIN")  # all queries of the transaction see one state of the file
            return news_of(connection, ids or {}, run, most)

    def histograms(
        self, name: str | None = None, superseded: bool = False, run: str | None = None
    ) -> dict[Series, list[tuple[int, list[float], list[int]]]]:
        """Return step, edges and counts of each histogram."""
        found: dict[Series, list[tuple[int, list[float], list[int]]]] = {}
        for row in self._rows("histograms", "edges, counts", name, None, superseded, run):
            found.setdefault(row[0], []).append((row[2], *edges_and_counts(row[5], row[6])))
        return found

    def arrays(
        self, name: str | None = None, superseded: bool = False, run: str | None = None
    ) -> dict[Series, list[StoredArray]]:
        """Return the arrays of each series, in the order in which they were written."""
        found: dict[Series, list[StoredArray]] = {}
        labels = Labelled()
        for row in self._rows("arrays", "segment, shape, labels, numbers", name, None, superseded, run):
            series, _, step, epoch, time, segment, shape, names, numbers, _ = row
            whole = StoredArray(step, epoch, time, *shape_and_values(shape, numbers), labels.of(segment, series, names))
            found.setdefault(series, []).append(whole)
        return found

    def texts(
        self, name: str | None = None, superseded: bool = False, run: str | None = None
    ) -> dict[Series, list[tuple[int, str]]]:
        """Return step and text of each text."""
        found: dict[Series, list[tuple[int, str]]] = {}
        for row in self._rows("texts", "text", name, None, superseded, run):
            if row[0].name != HISTORY:
                found.setdefault(row[0], []).append((row[2], row[5]))
        return found

    def files(
        self, name: str | None = None, superseded: bool = False, run: str | None = None
    ) -> dict[Series, list[tuple[int, str, int, str]]]:
        """Return step, path, size and SHA-256 of each file."""
        found: dict[Series, list[tuple[int, str, int, str]]] = {}
        for row in self._rows("files", "path, size, sha256", name, None, superseded, run):
            found.setdefault(row[0], []).append((row[2], row[5], row[6], row[7]))
        return found

    def history(self, run: str | None = None) -> dict[str, list[dict[str, Any]]]:
        """Return the rows of ``tm.history`` as they were: "epochs" and "evaluations"."""
        rows: dict[str, list[dict[str, Any]]] = {EPOCHS: [], EVALUATIONS: []}
        for row in self._rows("texts", "text", HISTORY, None, False, run):
            rows[row[0].stage].append(json.loads(row[5])["row"])
        return {"epochs": rows[EPOCHS], "evaluations": rows[EVALUATIONS]}

    def last_step(self, run: str | None = None) -> int:
        """Return the last step that has a metric; 0 if there is none."""
        with self._reading() as connection:
            connection.execute("BEGIN")  # all queries of the transaction see one state of the file
            segments = segments_of(connection, run)
            last = dict(connection.execute("SELECT segment, max(step) FROM scalars GROUP BY segment"))
        return max((int(min(step, segments[id_].until)) for id_, step in last.items() if id_ in segments), default=0)

    def last_time(self, run: str) -> float | None:
        """Return when a run has stored its last metric, in seconds since 1970; None if it has none."""
        sql = "SELECT max(time) FROM scalars JOIN segments ON segments.id = segment WHERE run = ?"
        with self._reading() as connection:
            (time,) = connection.execute(sql, (run,)).fetchone()
        return None if time is None else float(time)

    def to_pandas(
        self, name: str | None = None, stage: str | None = None, superseded: bool = False, run: str | None = None
    ) -> DataFrame:
        """Return a data frame with a row for each scalar (``pip install "train-manager[pandas]"``).

        Raises:
            ImportError: pandas is not installed.
        """
        try:
            import pandas
        except ImportError as error:
            raise ImportError(f'to_pandas needs pandas ({error}): pip install "train-manager[pandas]"') from error
        rows = [
            (found_run, *series, step, epoch, time, float("nan") if value is None else value, is_superseded)
            for series, found_run, step, epoch, time, value, is_superseded in self._rows(
                "scalars", "value", name, stage, superseded, run
            )
        ]
        columns = ["run", *Series._fields, "step", "epoch", "time", "value", "superseded"]
        frame: DataFrame = pandas.DataFrame.from_records(rows, columns=columns)
        return frame if superseded else frame.drop(columns="superseded")

    # ---- rows ----------------------------------------------------------------------------------------------------

    def _rows(
        self, table: str, columns: str, name: str | None, stage: str | None, superseded: bool, run: str | None
    ) -> Iterator[tuple[Any, ...]]:
        """Yield series, run, step, epoch, time, the columns, and whether the row is superseded."""
        with self._reading() as connection:
            connection.execute("BEGIN")  # all queries of the transaction see one state of the file
            if not has_table(connection, table):
                return
            wanted = wanted_of(connection, name, stage)
            segments = segments_of(connection, run)
            ids = ", ".join(map(str, wanted))
            place = "series, segment, step, coalesce(own_step, step), epoch, time"
            sql = f"SELECT {place}, {columns} FROM {table} WHERE series IN ({ids}) ORDER BY id"
            for id_, segment, step, *rest in connection.execute(sql):
                of = segments.get(segment)
                if of is None or (step > of.until and not superseded):
                    continue
                yield wanted[id_], of.run, *rest, step > of.until

    @contextmanager
    def _reading(self) -> Iterator[sqlite3.Connection]:
        """Open the file for the time of one call.

        Raises:
            InputError: it is of another program or version, empty, or damaged.
        """
        try:
            with open_to_read(self.path) as connection:
                if is_empty(connection):
                    what = f"{quote_path(self.path)} has nothing in it yet"
                    raise InputError(what, name="path", cure="read it again once its run has begun")
                require_ours(connection, self.path)
                yield connection
        except sqlite3.DatabaseError as error:
            what = f"{quote_path(self.path)} cannot be read: {error}"
            raise InputError(what, name="path", cure="is it damaged, or of another program?") from error


def wanted_of(connection: sqlite3.Connection, name: str | None, stage: str | None) -> dict[int, Series]:
    """Return the series of a name and a stage by their ids; None is any."""
    rows = connection.execute("SELECT id, name, stage, datasource, phase FROM series")
    found = {id_: Series(*names) for id_, *names in rows}
    return {id_: of for id_, of in found.items() if name in (None, of.name) and stage in (None, of.stage)}


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
