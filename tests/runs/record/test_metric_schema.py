from __future__ import annotations

import signal
import sqlite3
import time
from contextlib import closing
from pathlib import Path

import pytest

from tests.fork_server import ForkServer
from train_manager.runs.record.background_writer import BackgroundWriter
from train_manager.runs.record.metric_items import Begin
from train_manager.runs.record.metric_reader import MetricReader
from train_manager.runs.record.metric_schema import (
    APPLICATION_ID,
    FIRST,
    LATEST,
    SCHEMA,
    Series,
    database_uri,
    is_empty,
    make_tables,
    upgrade,
)

PLACE = ["id", "series", "segment", "step", "epoch", "time"]


def test_the_tables_are_these() -> None:
    """Other programs read the file: a change of a table needs another VERSION."""
    with closing(sqlite3.connect(":memory:")) as connection:
        assert is_empty(connection)
        make_tables(connection)
        sql = "SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite%'"
        names = [name for (name,) in connection.execute(sql)]
        found = {name: [row[1] for row in connection.execute(f"PRAGMA table_info({name})")] for name in names}

    assert found == {
        "segments": ["id", "run", "training", "began", "from_step", "until_step"],
        "series": ["id", "name", "stage", "datasource", "phase"],
        "scalars": [*PLACE, "value", "own_step"],
        "histograms": [*PLACE, "edges", "counts", "own_step"],
        "texts": [*PLACE, "text", "own_step"],
        "files": [*PLACE, "path", "size", "sha256", "own_step"],
        "arrays": [*PLACE, "shape", "labels", "numbers", "own_step"],
    }


@pytest.mark.parametrize("name", ["a b", "a?mode=rwc", "a#b", "a%41", "a\nb", "🦊"])
def test_a_path_with_any_characters_is_opened_as_it_is(tmp_path: Path, name: str) -> None:
    with closing(sqlite3.connect(database_uri(tmp_path / name, "rwc"), uri=True)) as connection:
        connection.execute("CREATE TABLE found(x)")

    assert [path.name for path in tmp_path.iterdir()] == [name]


# ---- earlier versions ------------------------------------------------------------------------------------------------


def make_earlier(path: Path, version: int) -> None:
    """Make the tables of an earlier version, and a segment."""
    schema = "".join(line for line in SCHEMA.splitlines(keepends=True) if "training INTEGER" not in line)
    if version == FIRST:
        schema = schema.replace(" AUTOINCREMENT", "")
    with closing(sqlite3.connect(path)) as connection:
        for statement in filter(str.strip, schema.split(";\n")):
            if "VIEW" not in statement and not (version == FIRST and "arrays" in statement):
                connection.execute(statement)
        connection.execute("INSERT INTO segments VALUES (1, 'first', 1.0, -1, NULL)")
        connection.execute(f"PRAGMA application_id={APPLICATION_ID}")
        connection.execute(f"PRAGMA user_version={version}")
        connection.commit()


def make_first(path: Path, rows: int = 3) -> None:
    """Make a file of the first version, in which a row of every table was written."""
    make_earlier(path, FIRST)
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("INSERT INTO series VALUES (5, 'loss', 'train_step_batch', 'training', '')")
        for row in range(1, rows + 1):
            connection.execute("INSERT INTO scalars VALUES (?, 5, 1, ?, 1, 1.0, 0.5, NULL)", (2 * row, row))
        connection.execute("INSERT INTO histograms VALUES (1, 5, 1, 1, 1, 1.0, ?, ?, 9)", (bytes(16), bytes(8)))
        connection.execute("INSERT INTO texts VALUES (1, 5, 1, 1, 1, 1.0, 'said', NULL)")
        connection.execute("INSERT INTO files VALUES (1, 5, 1, 1, 1, 1.0, 'plots/x.png', 1, 'ab', NULL)")
        connection.commit()


def make_second(path: Path) -> None:
    """Make a file of the second version: of a training, of one that began anew, and of two resumes of that.

    The epoch of the last one was trained to its end, so the row of its part was replaced.
    """
    make_earlier(path, 2)
    segments = [("gone", -1, -1), ("first", -1, 3), ("second", 3, 2), ("third", 2, None), ("third", None, -1)]
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("DELETE FROM segments")
        connection.execute("INSERT INTO series VALUES (5, 'loss', 'train_step_batch', 'training', '')")
        for id_, (run, from_step, until_step) in enumerate(segments, start=1):
            connection.execute("INSERT INTO segments VALUES (?, ?, 1.0, ?, ?)", (id_, run, from_step, until_step))
            for step in range(max(from_step or 0, 0) + 1, (from_step or 0) + 3):
                connection.execute(
                    "INSERT INTO scalars VALUES (NULL, 5, ?, ?, 1, 1.0, ?, NULL)", (id_, step, 10 * id_ + step)
                )
        connection.commit()


def losses(path: Path, *, superseded: bool = False) -> list[float]:
    return [value for of in MetricReader(path).scalars("loss", superseded=superseded).values() for value in of.values]


def test_of_a_file_of_the_second_version_counts_what_did_when_it_was_written(tmp_path: Path) -> None:
    make_second(path := tmp_path / "metrics.sqlite")
    before = losses(path), losses(path, superseded=True)

    writer = BackgroundWriter(path, "evaluates")
    writer.append(Begin(LATEST, 2.0, {}))
    writer.append((writer.number(Series("own")), 4, 1, 1.0, 0.25))
    writer.close()

    assert (losses(path), losses(path, superseded=True)) == before
    assert before[0] == [21, 43, 44]
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("SELECT training FROM segments").fetchall() == [(1,), (2,), (2,), (2,), (2,), (2,)]


def test_a_training_of_the_second_version_continues(tmp_path: Path) -> None:
    make_second(path := tmp_path / "metrics.sqlite")

    writer = BackgroundWriter(path, "fourth")
    writer.append(Begin(3, 2.0, {}, "first"))
    writer.append((writer.number(Series("loss", "train_step_batch")), 4, 1, 1.0, 64.0))
    writer.close()

    assert losses(path) == [21, 43, 64]
    assert losses(path, superseded=True)[0] == 11  # of the training before


def all_values(path: Path) -> list[object]:
    reader = MetricReader(path)
    return [reader.scalars("loss"), reader.histograms(), reader.texts(), reader.files(), reader.last_step()]


def schema_of(path: Path) -> set[str]:
    with closing(sqlite3.connect(path)) as connection:
        found = connection.execute("SELECT sql FROM sqlite_master WHERE sql NOT NULL AND name NOT LIKE 'sqlite%'")
        return {sql.replace('"', "") for (sql,) in found} | {str(connection.execute("PRAGMA user_version").fetchone())}


def test_a_file_of_the_first_version_is_read_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "metrics.sqlite"
    make_first(path)
    before = path.read_bytes()

    [scalars] = MetricReader(path).scalars("loss").values()
    assert scalars.steps == [1, 2, 3]
    assert MetricReader(path).arrays() == {}
    assert path.read_bytes() == before


def test_a_file_of_the_first_version_is_upgraded_when_it_is_written(tmp_path: Path) -> None:
    path, new = tmp_path / "metrics.sqlite", tmp_path / "new.sqlite"
    make_first(path)
    before = all_values(path)
    for one in (path, new):
        writer = BackgroundWriter(one, "second")
        writer.append(Begin(LATEST, 2.0, {}))
        writer.append((writer.number(Series("own")), 4, 1, 1.0, 0.25))
        writer.close()

    assert all_values(path)[:4] == before[:4]
    assert [of.values for of in MetricReader(path).scalars("own").values()] == [[0.25]]
    assert schema_of(path) == schema_of(new)


def test_an_upgrade_that_fails_leaves_the_file_as_it_was(tmp_path: Path) -> None:
    path = tmp_path / "metrics.sqlite"
    make_first(path)
    before = schema_of(path)
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("BEGIN IMMEDIATE")
        upgrade(connection)
        connection.execute("ROLLBACK")

    assert schema_of(path) == before
    assert [of.steps for of in MetricReader(path).scalars().values()] == [[1, 2, 3]]


def upgrade_until_killed(path: Path) -> None:
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("PRAGMA journal_mode=WAL").fetchone()
        connection.execute("PRAGMA cache_size=1")  # so that pages go to the disk before the end
        connection.execute("BEGIN IMMEDIATE")
        upgrade(connection)
        print("upgraded", flush=True)
        time.sleep(60)


def test_a_program_that_is_killed_in_an_upgrade_leaves_the_file_as_it_was(
    fork_server: ForkServer, tmp_path: Path
) -> None:
    path = tmp_path / "metrics.sqlite"
    make_first(path, rows=5000)
    before = all_values(path)
    child = fork_server.start(upgrade_until_killed, path)
    child.wait_for("upgraded")
    child.signal(signal.SIGKILL)
    child.wait()

    assert all_values(path) == before
    writer = BackgroundWriter(path, "second")
    writer.append(Begin(LATEST, 2.0, {}))
    writer.close()
    assert all_values(path) == before


def test_an_id_comes_once_though_the_last_rows_are_deleted(tmp_path: Path) -> None:
    path = tmp_path / "metrics.sqlite"
    ids = []
    for _ in range(2):
        writer = BackgroundWriter(path, "run")
        writer.append((writer.number(Series("own")), 1, 1, 1.0, 0.5))
        writer.close()
        with closing(sqlite3.connect(path)) as connection:
            ids += [id_ for (id_,) in connection.execute("SELECT id FROM scalars")]
            connection.execute("DELETE FROM scalars")
            connection.commit()

    assert ids == [1, 2]
