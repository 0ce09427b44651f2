"""The way from the store to a sink: each row that counts, once."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tests.runs.sending.sinks import Kept, counting, points_of
from train_manager.extensions import Checkpoints, MetricStore
from train_manager.runs.record.background_writer import BackgroundWriter
from train_manager.runs.record.metric_items import Begin, HistoryRow
from train_manager.runs.record.metric_news import NewRow
from train_manager.runs.record.metric_reader import MetricReader
from train_manager.runs.record.metric_schema import EVALUATIONS, FILE
from train_manager.runs.sending import sink_feed
from train_manager.runs.sending.exporting import runs_of
from train_manager.runs.sending.sink_feed import SinkFeed
from train_manager.runs.sending.sink_state import read_state
from train_manager.telling.errors import InputError
from train_manager.testing import tiny_manager


def train(folder: Path, epochs: int = 2, resume: Any = "fresh") -> str:
    tm = tiny_manager(MetricStore(), Checkpoints(resume=resume), epochs=epochs, train_dir=folder)
    tm.train()
    return tm.run_id


def feed_of(folder: Path, rows: list[NewRow], **options: Any) -> SinkFeed:
    return SinkFeed(folder, "kept", lambda state: Kept(rows, **options), {})


def runs_in(folder: Path) -> list[str]:
    return runs_of(MetricReader(folder))


def test_all_that_counts_is_sent(tmp_path: Path) -> None:
    rows: list[NewRow] = []
    train(tmp_path)
    count = feed_of(tmp_path, rows).send_new(runs_in(tmp_path))

    assert points_of(rows) == counting(tmp_path)
    assert count == len(rows)


def test_a_second_time_nothing_is_sent(tmp_path: Path) -> None:
    rows: list[NewRow] = []
    train(tmp_path)
    feed = feed_of(tmp_path, rows)
    feed.send_new(runs_in(tmp_path))

    assert [feed.send_new(runs_in(tmp_path)), feed_of(tmp_path, rows).send_new(runs_in(tmp_path))] == [0, 0]


def test_many_rows_are_sent_in_parts_that_are_noted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sink_feed, "MOST_AT_ONCE", 4)
    train(tmp_path, epochs=5)
    rows: list[NewRow] = []
    seconds: list[float] = []
    feed_of(tmp_path, rows).send_new(runs_in(tmp_path), rest=seconds.append)

    assert points_of(rows) == counting(tmp_path)
    assert len(seconds) > 5
    assert min(seconds) >= 0


def test_after_an_error_a_new_sink_is_sent_what_was_not_noted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sink_feed, "MOST_AT_ONCE", 8)
    train(tmp_path, epochs=5)
    calls: list[int] = []

    def fails_once(rows: Any) -> None:
        calls.append(len(rows))
        if len(calls) == 2:
            raise OSError("no space left")

    rows: list[NewRow] = []
    with pytest.raises(OSError, match="no space left"):
        feed_of(tmp_path, rows, before=fails_once).send_new(runs_in(tmp_path))
    assert 0 < len(rows) < sum(map(len, counting(tmp_path).values()))

    feed_of(tmp_path, rows).send_new(runs_in(tmp_path))
    assert points_of(rows) == counting(tmp_path)


def test_a_resume_tells_the_sink_from_which_step_it_continues(tmp_path: Path) -> None:
    rows: list[NewRow] = []
    train(tmp_path, epochs=2)
    feed_of(tmp_path, rows).send_new(runs_in(tmp_path))
    train(tmp_path, epochs=3, resume=True)
    sinks: list[Kept] = []
    SinkFeed(tmp_path, "kept", lambda _: sinks.append(Kept(rows)) or sinks[-1], {}).send_new(runs_in(tmp_path))  # type: ignore[func-returns-value]

    assert sinks[0].cuts == [6]
    assert [segment.from_step for segment in sinks[0].begun] == [6]
    assert points_of(rows) == counting(tmp_path)


def test_what_a_sink_was_told_is_noted_before_a_row_comes(tmp_path: Path) -> None:
    rows: list[NewRow] = []
    train(tmp_path, epochs=2)
    feed_of(tmp_path, rows).send_new(runs_in(tmp_path))
    writer = BackgroundWriter(tmp_path / FILE, "later")
    writer.append(Begin(3, 0.0, {}))
    writer.append(HistoryRow(EVALUATIONS, None, {"step": 3, "epoch": 1}, 0.0))
    writer.close()
    feed_of(tmp_path, rows).send_new(runs_in(tmp_path))  # and its process is killed

    assert read_state(tmp_path, "kept").own == {"rows": len(rows), "begun": [2], "cuts": [3]}


def test_of_runs_that_are_not_followed_a_sink_hears_only_what_they_supersede(tmp_path: Path) -> None:
    first = train(tmp_path, epochs=2)
    feed_of(tmp_path, []).send_new([first])
    train(tmp_path, epochs=3, resume=True)
    feed_of(tmp_path, []).send_new([first])

    assert read_state(tmp_path, "kept").own == {"rows": 0, "begun": [], "cuts": [6]}


def test_a_sink_that_needs_all_again_gets_all_again(tmp_path: Path) -> None:
    rows: list[NewRow] = []
    train(tmp_path, epochs=2)
    feed_of(tmp_path, rows).send_new(runs_in(tmp_path))
    train(tmp_path, epochs=3, resume=True)
    feed_of(tmp_path, rows, needs_all=True).send_new(runs_in(tmp_path))

    assert points_of(rows) == counting(tmp_path)


def test_rows_of_other_runs_are_left_out(tmp_path: Path) -> None:
    rows: list[NewRow] = []
    train(tmp_path, epochs=2)
    last = train(tmp_path, epochs=3, resume=True)
    feed_of(tmp_path, rows).send_new([last])

    assert {row.run for row in rows} == {last}
    assert points_of(rows) == counting(tmp_path, last)


def test_runs_that_are_added_later_are_sent_from_their_first_row_on_and_nothing_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sink_feed, "MOST_AT_ONCE", 8)
    rows: list[NewRow] = []
    first = train(tmp_path, epochs=2)
    last = train(tmp_path, epochs=3, resume=True)
    feed_of(tmp_path, rows).send_new([last])
    feed_of(tmp_path, rows).send_new([last, first], added=[first])

    assert points_of(rows) == counting(tmp_path)
    assert read_state(tmp_path, "kept").runs == (last, first)


def test_without_rows_no_sink_is_made(tmp_path: Path) -> None:
    def make(state: Mapping[str, Any]) -> Kept:
        raise AssertionError("made")

    assert SinkFeed(tmp_path, "kept", make, {}).send_new(["a"]) == 0


def test_a_store_whose_tables_are_not_made_yet_has_nothing_to_send(tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / FILE)) as connection:
        connection.execute("PRAGMA journal_mode=WAL")

        assert feed_of(tmp_path, []).send_new(["a"]) == 0


def test_a_store_that_is_damaged_is_told(tmp_path: Path) -> None:
    (tmp_path / FILE).write_text("no database, but a long text")
    with pytest.raises(InputError, match=r"metrics.sqlite cannot be read: file is not a database"):
        feed_of(tmp_path, []).send_new(["a"])


def test_a_file_that_was_replaced_is_sent_anew(tmp_path: Path) -> None:
    rows: list[NewRow] = []
    train(tmp_path, epochs=2)
    train(tmp_path, epochs=3, resume=True)
    feed_of(tmp_path, rows).send_new(runs_in(tmp_path))
    rows.clear()
    (tmp_path / "metrics.sqlite").unlink()
    assert feed_of(tmp_path, rows).send_new(["a"]) == 0
    tiny_manager(MetricStore(), train_dir=tmp_path).train()
    feed_of(tmp_path, rows).send_new(runs_in(tmp_path))

    assert points_of(rows) == counting(tmp_path)
