from __future__ import annotations

import gc
import math
import os
import re
import sqlite3
import threading
import warnings
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.support.eventually import eventually
from train_manager.runs.store import database, thread
from train_manager.runs.store.batches import Written
from train_manager.runs.store.reader import MetricReader
from train_manager.runs.store.rows import Begin, StoredRow
from train_manager.runs.store.schema import APPLICATION_ID, Series, database_uri
from train_manager.runs.store.thread import StoreThread

NORM = Series("norm")
WHY = "float() argument must be a string or a real number, not 'NoneType'"


@pytest.fixture(autouse=True)
def _ends() -> Iterator[None]:
    yield
    thread.close_all()  # a test that fails leaves no thread behind


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "metrics.sqlite"


def written(path: Path) -> list[float]:
    return [value for of in MetricReader(path).scalars().values() for value in of.values]


def norm(step: int, value: Any) -> Written:
    return Written((NORM, step, None, 1, 1700000000.0 + step, value))


def fill(store: StoreThread, *values: float, start: int = 1) -> None:
    for step, value in enumerate(values, start=start):
        store.append(norm(step, value))


def begin(run: str, step: int = 0) -> Begin:
    return Begin(0.0, run, step, {})


def workers() -> int:
    return sum(thread.name == "train-manager-metrics" for thread in threading.enumerate())


# ---- when it is written ----------------------------------------------------------------------------------------------


@pytest.fixture
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Write sooner than twice a second."""
    monkeypatch.setattr(thread, "EVERY", 0.01)
    monkeypatch.setattr(thread, "IDLE", 0.0)


@pytest.mark.usefixtures("soon")
def test_metrics_are_in_the_file_soon_without_a_flush(path: Path) -> None:
    store = StoreThread(path, "run")
    store.open()
    fill(store, 0.5, 0.25)

    eventually(lambda: path.exists() and not store.waiting)
    assert written(path) == [0.5, 0.25]


def test_nan_is_read_as_nan(path: Path) -> None:
    store = StoreThread(path, "run")
    fill(store, math.nan)
    store.close()

    assert [math.isnan(value) for value in written(path)] == [True]


def test_a_closed_store_leaves_one_file_and_no_thread(path: Path) -> None:
    store = StoreThread(path, "run")
    fill(store, 0.5)
    store.close()

    eventually(lambda: not workers())
    assert os.listdir(path.parent) == [path.name]


@pytest.mark.usefixtures("soon")
def test_a_run_that_opens_after_the_thread_has_ended_has_a_new_one(path: Path) -> None:
    store = StoreThread(path, "run")
    fill(store, 0.5)
    store.close()
    store.open()
    store.look()
    store.queue.append(norm(2, 0.25))  # as rows are, without a look

    eventually(lambda: not store.waiting)
    assert written(path) == [0.5, 0.25]


@pytest.mark.usefixtures("soon")
def test_the_thread_writes_what_waits_and_ends_and_closes_the_file_if_no_metrics_come(path: Path) -> None:
    fill(StoreThread(path, "run"), 0.5)
    gc.collect()

    eventually(lambda: not workers() and os.listdir(path.parent) == [path.name])
    assert written(path) == [0.5]


def test_a_run_that_began_earlier_is_in_the_file_before_a_later_one(path: Path) -> None:
    earlier = StoreThread(path, "earlier")
    earlier.append(begin("earlier"))
    fill(earlier, 0.5)
    later = StoreThread(path, "later")
    later.append(begin("later"))
    fill(later, 0.25, 0.125)
    later.close()
    earlier.close()

    assert written(path) == [0.25, 0.125]
    assert [part.run for part in MetricReader(path).runs()] == ["earlier", "later"]


# ---- what goes wrong -------------------------------------------------------------------------------------------------


def warned(store: StoreThread) -> str:
    """Flush, and return what was told."""
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        store.flush()
    return " | ".join(str(one.message) for one in told)


def test_metrics_wait_until_the_file_can_be_written(path: Path) -> None:
    path.mkdir()  # in the way
    store = StoreThread(path, "run")
    fill(store, 0.5, 0.25)

    expected = f"{path} cannot be written: unable to open database file; 2 metrics wait; the run continues"
    assert (warned(store), warned(store)) == (expected, "")
    path.rmdir()
    fill(store, 0.125, start=3)
    assert warned(store) == ""
    assert written(path) == [0.5, 0.25, 0.125]
    store.close()


def test_a_full_disk_loses_nothing_once_there_is_room(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    connect = database.connect

    def small(path: Path) -> sqlite3.Connection:
        connection = connect(path)
        connection.execute("PRAGMA max_page_count=16")
        return connection

    monkeypatch.setattr(database, "connect", small)
    store = StoreThread(path, "run")
    fill(store, *([0.5] * 10_000))
    assert "database or disk is full; 10000 metrics wait" in warned(store)

    monkeypatch.setattr(database, "connect", connect)
    store.close()
    assert len(written(path)) == 10_000


def test_a_disk_that_is_full_at_the_commit_loses_nothing(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Full(sqlite3.Connection):
        def execute(self, sql: str, *values: Any) -> sqlite3.Cursor:
            if sql == "COMMIT" and self.execute("SELECT count(*) FROM scalars").fetchone() != (0,):
                raise sqlite3.OperationalError("database or disk is full")
            return super().execute(sql, *values)

    connect = database.connect
    full = partial(sqlite3.connect, factory=Full, isolation_level=None, check_same_thread=False)
    monkeypatch.setattr(database, "connect", full)
    store = StoreThread(path, "run")
    fill(store, 0.5, 0.25)
    assert "database or disk is full; 2 metrics wait" in warned(store)

    monkeypatch.setattr(database, "connect", connect)
    store.close()  # without a word of a file that was replaced
    assert written(path) == [0.5, 0.25]


def test_a_transaction_with_a_value_that_cannot_be_stored_is_dropped_and_told_once(path: Path) -> None:
    store = StoreThread(path, "run")
    store.append(begin("run", 4))
    fill(store, 0.5)
    store.append(norm(2, None))

    what = f"{path} lacks 2 metrics, of which one cannot be stored: {WHY}"
    assert warned(store) == what
    fill(store, 0.25, start=3)
    store.append(norm(4, None))
    assert warned(store) == ""
    fill(store, 0.125, start=5)
    store.close()
    assert (written(path), store.lost) == ([0.125], 4)
    assert [part.run for part in MetricReader(path).runs()] == ["run"]


def test_any_name_of_a_series_is_stored(path: Path) -> None:
    store = StoreThread(path, "run")
    names = ["\0", "a'b\"; --", "\ud83d", "x" * 10_000]
    for name in names:
        store.append(Written((Series(name), 1, None, 1, 1700000000.0, 0.5)))
    store.close()

    assert {series.name for series in MetricReader(path).series()} == {*names} - {"\ud83d"} | {"\\ud83d"}


def test_beyond_the_limit_metrics_are_lost_with_one_warning(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(thread, "LIMIT", 3)
    path.mkdir()
    store = StoreThread(path, "run")
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        store.append(begin("run"))
        for start in (1, 3, 5):
            fill(store, start, start + 1, start=start)
            store.flush()
        store.append(begin("run", 6))
        fill(store, 7, start=7)
        store.flush()
    cannot = f"{path} cannot be written: unable to open database file"
    waits, lost = f"{cannot}; 3 metrics wait; the run continues", f"{cannot}; 3 metrics wait, further ones are lost"
    assert [str(one.message) for one in told] == [waits, f"{lost}; the run continues"]
    assert (store.waiting, store.lost) == (4, 5)

    path.rmdir()
    fill(store, 8, start=8)
    store.close()
    assert written(path) == [1, 2, 8]
    assert [part.step for part in MetricReader(path).runs()] == [None, 6]


# ---- followers -------------------------------------------------------------------------------------------------------


def test_a_follower_gets_the_rows_of_each_transaction(path: Path) -> None:
    store, got = StoreThread(path, "run"), list[list[StoredRow]]()
    unfollow = store.follow(lambda _, rows: got.append(list(rows)))
    fill(store, 0.5, 0.25)
    store.flush()
    fill(store, 0.125, start=3)
    store.flush()
    unfollow()
    fill(store, 1.0, start=4)
    store.close()

    assert [[row.value for row in rows] for rows in got] == [[0.5, 0.25], [0.125]]
    assert got[0][0] == StoredRow(NORM, 1, 1, 1700000001.0, 0.5)


def test_a_follower_gets_nothing_that_is_not_in_the_file(path: Path) -> None:
    path.mkdir()
    store, got = StoreThread(path, "run"), list[float]()
    store.follow(lambda _, rows: got.extend(row.value for row in rows))  # type: ignore[misc]
    fill(store, 0.5)
    warned(store)
    assert not got

    path.rmdir()
    store.close()
    assert got == [0.5]


def test_a_follower_that_fails_is_told_of_and_called_no_more(path: Path) -> None:
    class Fails:
        calls = 0

        def __call__(self, part: Any, rows: Any) -> None:
            self.calls += 1
            raise OSError("gone")

        def __repr__(self) -> str:
            return "Fails()"

    store = StoreThread(path, "run")
    store.follow(fails := Fails())
    fill(store, 0.5)
    assert warned(store) == "Fails() cannot take metrics, and gets no more: OSError('gone')"
    fill(store, 0.25, start=2)
    store.close()

    assert (fails.calls, written(path)) == (1, [0.5, 0.25])


# ---- files of others -------------------------------------------------------------------------------------------------


def foreign(path: Path, statement: str) -> bytes:
    connection = sqlite3.connect(path)
    connection.execute("CREATE TABLE theirs(x)")
    connection.execute(statement)
    connection.commit()
    connection.close()
    return path.read_bytes()


@pytest.mark.parametrize(
    ("statement", "what"),
    [
        ("PRAGMA application_id=7", "is a database of another program"),
        ("PRAGMA user_version=1", "is a database of another program"),
        (
            f"PRAGMA application_id={APPLICATION_ID}",
            "has version 0 of the metrics, but this train_manager knows 4",
        ),
    ],
)
def test_a_file_of_another_program_or_version_is_not_touched(path: Path, statement: str, what: str) -> None:
    before = foreign(path, statement)
    store = StoreThread(path, "run")
    fill(store, 0.5)

    assert what in warned(store)
    assert path.read_bytes() == before
    path.unlink()
    store.close()


def test_a_damaged_file_is_told_and_left_as_it_is(path: Path) -> None:
    path.write_bytes(b"not a database" * 1000)
    store = StoreThread(path, "run")
    fill(store, 0.5)

    assert "file is not a database; 1 metrics wait" in warned(store)
    path.unlink()
    store.close()
    assert written(path) == [0.5]


def test_a_file_that_is_removed_is_made_anew_and_told(path: Path) -> None:
    store = StoreThread(path, "run")
    store.open()
    fill(store, 0.5)
    store.flush()
    for file in path.parent.iterdir():
        file.unlink()
    fill(store, 0.25, start=2)

    assert warned(store) == f"{path} was removed or replaced, so it lacks the metrics of before"
    assert written(path) == [0.25]
    store.close()


def test_another_process_that_writes_is_waited_for(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(database, "BUSY_SECONDS", 0.01)
    store = StoreThread(path, "run")
    fill(store, 0.5)
    store.flush()
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    fill(store, 0.25, start=2)

    assert re.search("database is locked; 1 metrics wait", warned(reopened(store)))
    other.execute("COMMIT")
    other.close()
    store.close()
    assert written(path) == [0.5, 0.25]


def reopened(store: StoreThread) -> StoreThread:
    """Let it open the file anew, with the time to wait that it has now."""
    store.database.close()
    return store


def test_a_file_system_without_shared_memory_is_written_without_a_log(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    uri = database_uri
    monkeypatch.setattr(database, "database_uri", lambda path, mode: f"{uri(path, mode)}&vfs=unix-dotfile")
    store = StoreThread(path, "run")
    store.open()
    fill(store, 0.5)
    store.flush()

    assert not path.with_name("metrics.sqlite-wal").exists()
    assert written(path) == [0.5]
    store.close()


def test_metrics_that_could_not_be_written_until_the_end_are_told(path: Path) -> None:
    path.mkdir()
    store = StoreThread(path, "run")
    fill(store, 0.5)
    warned(store)

    with pytest.warns(RuntimeWarning) as told:
        thread.close_all()
    assert str(told[-1].message) == f"{path} cannot be written: unable to open database file; 1 metrics are lost"


# ---- names -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name", ["a b", "line\nbreak", "50% off?", "#1", "🦊", "a&mode=ro", b"\xff".decode("utf8", "surrogateescape")]
)
def test_a_folder_may_have_any_name(tmp_path: Path, name: str) -> None:
    folder = tmp_path / name
    folder.mkdir()
    store = StoreThread(folder / "metrics.sqlite", "run")
    fill(store, 0.5)
    store.close()

    assert written(folder / "metrics.sqlite") == [0.5]


# ---- forks -----------------------------------------------------------------------------------------------------------


def test_a_child_has_no_connection_and_the_parent_continues(path: Path) -> None:
    store = StoreThread(path, "run")
    store.open()
    fill(store, 0.5)
    store.flush()
    child = os.fork()
    if child == 0:
        is_clean = not store.waiting and store.database._connection is None
        os._exit(0 if is_clean else 1)
    fill(store, 0.25, start=2)
    store.close()

    assert os.waitpid(child, 0)[1] == 0
    assert written(path) == [0.5, 0.25]


def test_what_a_child_writes_is_another_run(path: Path) -> None:
    store = StoreThread(path, "run")
    store.append(begin("run"))
    fill(store, 0.5)
    store.flush()
    child = os.fork()
    if child == 0:
        fill(store, 7.0)
        store.close()
        os._exit(0)
    os.waitpid(child, 0)
    fill(store, 0.25, start=2)
    store.close()

    reader = MetricReader(path)
    assert [part.run for part in reader.runs()] == ["run", f"run-{child}"]
    found = {part.run: [of.values for of in reader.scalars(run=part.run).values()] for part in reader.runs()}
    assert found == {"run": [[0.5, 0.25]], f"run-{child}": [[0.5, 7.0, 0.25]]}
