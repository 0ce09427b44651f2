from __future__ import annotations

import gc
import math
import os
import re
import shutil
import sqlite3
import threading
import warnings
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.eventually import eventually
from train_manager.runs.record import background_writer, metric_database
from train_manager.runs.record.background_writer import BackgroundWriter
from train_manager.runs.record.metric_items import Begin, Blob, Labels, Other
from train_manager.runs.record.metric_reader import MetricReader
from train_manager.runs.record.metric_schema import APPLICATION_ID, Series, database_uri

LOSS = Series("loss", "train_step_batch")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "metrics.sqlite"


def written(path: Path) -> list[float]:
    return [value for of in MetricReader(path).scalars().values() for value in of.values]


def fill(writer: BackgroundWriter, *values: float, start: int = 1) -> None:
    number = writer.number(LOSS)
    for step, value in enumerate(values, start=start):
        writer.append((number, step, 1, 1700000000.0 + step, value))


def workers() -> int:
    return sum(thread.name == "train-manager-metrics" for thread in threading.enumerate())


# ---- when it is written ----------------------------------------------------------------------------------------------


def test_metrics_are_in_the_file_soon_without_a_flush(path: Path) -> None:
    writer = BackgroundWriter(path, "run")
    writer.keeps_open = True
    fill(writer, 0.5, 0.25)

    eventually(lambda: path.exists() and not writer.waiting)
    assert written(path) == [0.5, 0.25]


def test_a_number_comes_back_to_the_bit(path: Path) -> None:
    values = [0.1, 1 / 3, 5e-324, math.inf, -math.inf, 1.7976931348623157e308]
    writer = BackgroundWriter(path, "run")
    fill(writer, *values)
    writer.close()

    assert [value.hex() for value in written(path)] == [value.hex() for value in values]


def test_nan_is_read_as_nan(path: Path) -> None:
    writer = BackgroundWriter(path, "run")
    fill(writer, math.nan)
    writer.close()

    assert [math.isnan(value) for value in written(path)] == [True]


def test_a_closed_writer_leaves_one_file_and_no_thread(path: Path) -> None:
    writer = BackgroundWriter(path, "run")
    fill(writer, 0.5)
    writer.close()

    eventually(lambda: not workers())
    assert os.listdir(path.parent) == [path.name]


def test_a_metric_after_the_close_opens_the_file_again(path: Path) -> None:
    writer = BackgroundWriter(path, "run")
    fill(writer, 0.5)
    writer.close()
    fill(writer, 0.25, start=2)
    writer.close()

    assert written(path) == [0.5, 0.25]


def test_a_run_that_opens_as_the_thread_closes_keeps_it(path: Path) -> None:
    writer = BackgroundWriter(path, "run")
    fill(writer, 0.5)
    writer.keeps_open = True
    writer.close()
    eventually(lambda: not writer._channel._is_closing)
    writer.queue.append((writer.number(LOSS), 2, 1, 1700000002.0, 0.25))  # as rows are, without a look

    eventually(lambda: not writer.waiting)
    assert written(path) == [0.5, 0.25]


def test_the_thread_ends_and_closes_the_file_if_no_metrics_come(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(background_writer, "IDLE", 0.0)
    fill(BackgroundWriter(path, "run"), 0.5)

    eventually(lambda: not workers() and os.listdir(path.parent) == [path.name])


def test_a_writer_that_is_collected_writes_what_waits(path: Path) -> None:
    fill(BackgroundWriter(path, "run"), 0.5)
    gc.collect()

    assert written(path) == [0.5]


def test_what_an_earlier_writer_has_begun_supersedes_nothing_of_a_later_one(path: Path) -> None:
    earlier = BackgroundWriter(path, "earlier")
    earlier.append(Begin(-1, 0.0, {}))
    fill(earlier, 0.5)
    later = BackgroundWriter(path, "later")
    later.append(Begin(-1, 0.0, {}))
    fill(later, 0.25, 0.125)
    later.close()
    earlier.close()

    assert written(path) == [0.25, 0.125]


def test_many_metrics_are_written_in_their_order(path: Path) -> None:
    writer = BackgroundWriter(path, "run")
    values = [float(n) for n in range(1234)]
    fill(writer, *values)
    writer.close()

    assert written(path) == values


# ---- what goes wrong -------------------------------------------------------------------------------------------------


def warned(writer: BackgroundWriter) -> str:
    """Flush, and return what was told."""
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        writer.flush()
    return " | ".join(str(one.message) for one in told)


def test_metrics_wait_until_the_file_can_be_written(path: Path) -> None:
    path.mkdir()  # in the way
    writer = BackgroundWriter(path, "run")
    fill(writer, 0.5, 0.25)

    expected = f"{path} cannot be written: unable to open database file; 2 metrics wait; the run continues"
    assert (warned(writer), warned(writer)) == (expected, "")
    path.rmdir()
    fill(writer, 0.125, start=3)
    assert warned(writer) == ""
    assert written(path) == [0.5, 0.25, 0.125]
    writer.close()


def test_a_full_disk_loses_nothing_once_there_is_room(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    connect = metric_database.connect

    def small(path: Path) -> sqlite3.Connection:
        connection = connect(path)
        connection.execute("PRAGMA max_page_count=16")
        return connection

    monkeypatch.setattr(metric_database, "connect", small)
    writer = BackgroundWriter(path, "run")
    fill(writer, *([0.5] * 10_000))
    assert "database or disk is full; 10000 metrics wait" in warned(writer)

    monkeypatch.setattr(metric_database, "connect", connect)
    writer.close()
    assert len(written(path)) == 10_000


def test_a_disk_that_is_full_at_the_commit_loses_nothing(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Full(sqlite3.Connection):
        def execute(self, sql: str, *values: Any) -> sqlite3.Cursor:
            if sql == "COMMIT" and self.execute("SELECT count(*) FROM scalars").fetchone() != (0,):
                raise sqlite3.OperationalError("database or disk is full")
            return super().execute(sql, *values)

    connect = metric_database.connect
    full = partial(sqlite3.connect, factory=Full, isolation_level=None, check_same_thread=False)
    monkeypatch.setattr(metric_database, "connect", full)
    writer = BackgroundWriter(path, "run")
    fill(writer, 0.5, 0.25)
    assert "database or disk is full; 2 metrics wait" in warned(writer)

    monkeypatch.setattr(metric_database, "connect", connect)
    writer.close()  # without a word of a file that was replaced
    assert written(path) == [0.5, 0.25]


def test_a_metric_that_cannot_be_stored_keeps_no_other_back(path: Path) -> None:
    writer = BackgroundWriter(path, "run")
    fill(writer, *([0.5] * 100))
    writer.append((writer.number(Series("odd")), 101, 1, 1700000000.0, "no number"))
    fill(writer, *([0.25] * 100))

    what = f"{path} lacks a metric of 'odd', which cannot be stored: could not convert string to float: 'no number'"
    assert warned(writer) == f"{what} (1 so far)"
    writer.close()
    assert written(path) == [0.5] * 100 + [0.25] * 100


def test_any_name_of_a_series_is_stored(path: Path) -> None:
    writer = BackgroundWriter(path, "run")
    names = ["\0", "a'b\"; --", "\ud83d", "x" * 10_000]
    for name in names:
        writer.append((writer.number(Series(name)), 1, 1, 1700000000.0, 0.5))
    writer.close()

    assert {series.name for series in MetricReader(path).series()} == {*names} - {"\ud83d"} | {"\\ud83d"}


def test_beyond_the_limit_metrics_are_lost_and_counted(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(background_writer, "LIMIT", 3)
    monkeypatch.setattr(background_writer.Channel, "_start", lambda _: None)  # a thread that hangs
    path.mkdir()
    writer = BackgroundWriter(path, "run")
    writer.append(Begin(-1, 0.0, {}))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        fill(writer, 1, 2, 3, 4, 5)
        assert (writer.waiting, writer.lost) == (3, 3)
        path.rmdir()
        writer.close()

    assert written(path) == [1, 2]


def test_beyond_the_limit_arrays_are_lost_too(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(background_writer, "LIMIT", 3)
    monkeypatch.setattr(background_writer.Channel, "_start", lambda _: None)  # a thread that hangs
    writer = BackgroundWriter(path, "run")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for step in range(10):
            columns = ("[1]", Labels(None), Blob("f", [step]))
            writer.append(Other("arrays", writer.number(LOSS), step, 1, 0.0, columns))
        writer.close()

    assert writer.lost == 7
    assert [row.step for of in MetricReader(path).arrays().values() for row in of] == [0, 1, 2]


# ---- labels ----------------------------------------------------------------------------------------------------------


def labelled(writer: BackgroundWriter, step: int) -> Other:
    return Other("arrays", writer.number(LOSS), step, 1, 0.0, ("[1]", Labels(("a",)), Blob("f", [0.5])))


def test_labels_are_written_again_for_a_segment_that_begins(path: Path) -> None:
    writer = BackgroundWriter(path, "run")
    for item in (Begin(-1, 0.0, {}), labelled(writer, 1), Begin(0, 0.0, {}), labelled(writer, 1)):
        writer.append(item)
    writer.close()

    assert [row.labels for of in MetricReader(path).arrays().values() for row in of] == [("a",)]


def test_labels_that_were_rolled_back_are_written_again(path: Path) -> None:
    writer = BackgroundWriter(path, "run")
    fill(writer, 0.5)
    writer.flush()  # the segment has begun
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        writer.append(labelled(writer, 1))
        writer.append((writer.number(LOSS), 2, 1, 0.0, "x"))  # which ends the transaction
        writer.append(labelled(writer, 3))
        writer.close()

    found = [(row.step, row.labels) for of in MetricReader(path).arrays().values() for row in of]
    assert found == [(1, ("a",)), (3, ("a",))]


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
            "has version 0 of the metrics, but this train_manager knows 3",
        ),
    ],
)
def test_a_file_of_another_program_or_version_is_not_touched(path: Path, statement: str, what: str) -> None:
    before = foreign(path, statement)
    writer = BackgroundWriter(path, "run")
    fill(writer, 0.5)

    assert what in warned(writer)
    assert path.read_bytes() == before
    path.unlink()
    writer.close()


def test_a_damaged_file_is_told_and_left_as_it_is(path: Path) -> None:
    path.write_bytes(b"not a database" * 1000)
    writer = BackgroundWriter(path, "run")
    fill(writer, 0.5)

    assert "file is not a database; 1 metrics wait" in warned(writer)
    path.unlink()
    writer.close()
    assert written(path) == [0.5]


def test_a_file_that_is_removed_is_made_anew_and_told(path: Path) -> None:
    writer = BackgroundWriter(path, "run")
    writer.keeps_open = True
    fill(writer, 0.5)
    writer.flush()
    for file in path.parent.iterdir():
        file.unlink()
    fill(writer, 0.25, start=2)

    assert warned(writer) == f"{path} was removed or replaced, so it lacks the metrics of before"
    assert written(path) == [0.25]
    writer.close()


def test_a_folder_that_is_removed_is_made_anew(path: Path) -> None:
    folder = path.parent / "run"
    writer = BackgroundWriter(folder / "metrics.sqlite", "run")
    fill(writer, 0.5)
    writer.flush()
    shutil.rmtree(folder)
    fill(writer, 0.25, start=2)

    assert "was removed or replaced" in warned(writer)
    writer.close()
    assert written(folder) == [0.25]


def test_another_process_that_writes_is_waited_for(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metric_database, "BUSY_SECONDS", 0.01)
    writer = BackgroundWriter(path, "run")
    fill(writer, 0.5)
    writer.flush()
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    fill(writer, 0.25, start=2)

    assert re.search("database is locked; 1 metrics wait", warned(reopened(writer)))
    other.execute("COMMIT")
    other.close()
    writer.close()
    assert written(path) == [0.5, 0.25]


def reopened(writer: BackgroundWriter) -> BackgroundWriter:
    """Let it open the file anew, with the time to wait that it has now."""
    writer._channel.database.close()
    return writer


def test_a_file_system_without_shared_memory_is_written_without_a_log(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    uri = database_uri
    monkeypatch.setattr(metric_database, "database_uri", lambda path, mode: f"{uri(path, mode)}&vfs=unix-dotfile")
    writer = BackgroundWriter(path, "run")
    writer.keeps_open = True
    fill(writer, 0.5)
    writer.flush()

    assert not path.with_name("metrics.sqlite-wal").exists()
    assert written(path) == [0.5]
    writer.close()


def test_metrics_that_could_not_be_written_until_the_end_are_told(path: Path) -> None:
    path.mkdir()
    writer = BackgroundWriter(path, "run")
    fill(writer, 0.5)
    warned(writer)

    with pytest.warns(RuntimeWarning) as told:
        writer._end()
    assert str(told[-1].message) == f"{path} cannot be written: unable to open database file; 1 metrics are lost"


# ---- names -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name", ["a b", "line\nbreak", "50% off?", "#1", "🦊", "a&mode=ro", b"\xff".decode("utf8", "surrogateescape")]
)
def test_a_folder_may_have_any_name(tmp_path: Path, name: str) -> None:
    folder = tmp_path / name
    folder.mkdir()
    writer = BackgroundWriter(folder / "metrics.sqlite", "run")
    fill(writer, 0.5)
    writer.close()

    assert written(folder / "metrics.sqlite") == [0.5]


# ---- forks -----------------------------------------------------------------------------------------------------------


def test_a_child_has_no_connection_and_the_parent_continues(path: Path) -> None:
    writer = BackgroundWriter(path, "run")
    writer.keeps_open = True
    fill(writer, 0.5)
    writer.flush()
    child = os.fork()
    if child == 0:
        is_clean = not writer.waiting and writer._channel.database._connection is None
        os._exit(0 if is_clean else 1)
    fill(writer, 0.25, start=2)
    writer.close()

    assert os.waitpid(child, 0)[1] == 0
    assert written(path) == [0.5, 0.25]


def test_the_file_is_closed_before_a_fork(path: Path) -> None:
    """SQLite forbids a connection that is open in two processes."""
    writer = BackgroundWriter(path, "run")
    writer.keeps_open = True
    fill(writer, 0.5)
    writer.flush()
    writer._channel.before_fork()

    assert writer._channel.database._connection is None
    writer._channel.after_fork_in_parent()
    writer.close()


def test_a_child_may_write_on_its_own(path: Path) -> None:
    writer = BackgroundWriter(path, "run")
    fill(writer, 0.5)
    child = os.fork()
    if child == 0:
        writer._channel.database.path = path.with_name("child.sqlite")
        fill(writer, 7.0)
        writer.close()
        os._exit(0)
    os.waitpid(child, 0)
    writer.close()

    assert (written(path), written(path.with_name("child.sqlite"))) == ([0.5], [7.0])
