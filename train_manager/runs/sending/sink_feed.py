"""Sends the new rows of ``metrics.sqlite`` to a sink: each row that counts, once."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from time import thread_time
from typing import Any, Final, final

from train_manager.runs.record.metric_news import NewRow, News, NewSegment
from train_manager.runs.record.metric_reader import MetricReader, open_to_read
from train_manager.runs.record.metric_schema import FILE, is_empty
from train_manager.runs.sending.sink import Sink
from train_manager.runs.sending.sink_state import SinkState, read_state, write_state

MOST_AT_ONCE: Final = 1000  # rows that are sent before they are noted in sinks.json
MakesSink = Callable[[Mapping[str, Any]], Sink]
"""Makes a sink from the last value of the former sink's ``flush``."""


@final
class SinkFeed:
    """The way from a ``train_dir`` to a sink, which is made when there is a first row to send.

    Args:
        train_dir: the folder with ``metrics.sqlite``.
        name: of the sink.
        make: makes it.
        process: which process sends; empty if none continues to do so.
    """

    def __init__(self, train_dir: Path, name: str, make: MakesSink, process: Mapping[str, Any]) -> None:
        self._train_dir, self._name, self._make = train_dir, name, make
        self._state = replace(read_state(train_dir, name), process=process)
        self._sink: Sink | None = None

    @property
    def state(self) -> SinkState:
        """What was sent."""
        return self._state

    def send_new(
        self,
        runs: Collection[str],
        added: Collection[str] = (),
        rest: Callable[[float], object] = lambda seconds: None,
    ) -> int:
        """Send the rows that were not sent yet, note each batch of them as sent, and return their number.

        Args:
            runs: the run_ids whose rows are sent.
            added: the run_ids among them whose rows may be older than the last row that was sent. Their rows are
                looked for from the first row on, and are noted as sent only at the end.
            rest: called after each batch of rows with the processor's seconds that it took.
        """
        if not has_tables(self._train_dir / FILE):
            return 0
        reader, floor, count = MetricReader(self._train_dir), self._state.ids, 0
        # `floor`: the last row of each table that was sent; `ids`: the last row of each table that was looked at.
        ids: Mapping[str, int] = {} if added else floor
        state = replace(self._state, runs=tuple(dict.fromkeys([*self._state.runs, *runs])))
        has_more = True
        while has_more:
            began = thread_time()
            news = reader.since(ids, most=MOST_AT_ONCE)
            # The file of metrics was replaced by a new one, in which rows count from 1 again.
            floor = {} if news.is_anew else floor
            cut, begun = self._cut(news, floor), [one for one in news.segments if one.run in runs]
            # A run that resumes has superseded rows that were sent. If the sink had to drop everything, all is sent
            # again.
            if cut is not None and self._open_sink().cut(cut):
                floor = {"segments": news.ids["segments"]}
                news = reader.since(floor, most=MOST_AT_ONCE)
            rows = [row for row in unsent_rows(news, floor, added) if row.run in runs]
            if begun or rows or cut is not None:
                state = replace(state, own=self._hand_on(begun, rows))
            ids, has_more = news.ids, news.has_more
            state = replace(state, ids={table: max(id_, floor.get(table, 0)) for table, id_ in ids.items()})
            # While old rows are still coming, an error must leave sinks.json as it was: a retry begins from the first
            # row.
            if not (added and has_more):
                self._note(state)
            count += len(rows)
            rest(thread_time() - began)
        return count

    def close(self) -> None:
        """Close the sink, and note that no process sends."""
        sink, self._sink = self._sink, None
        if sink is not None:
            sink.close()
        if self._state.ids:
            self._note(replace(self._state, process={}))

    def _cut(self, news: News, floor: Mapping[str, int]) -> int | None:
        """Return the step after which rows that were sent do not count any more; None if all count."""
        new = [segment for segment in news.segments if segment.id > floor.get("segments", 0)]
        steps = [segment.from_step for segment in new if segment.from_step is not None]
        return min(steps, default=None) if self._state.own else None

    def _hand_on(self, begun: Sequence[NewSegment], rows: Sequence[NewRow]) -> Mapping[str, Any]:
        """Give the new rows to the sink, and return the state from which another sink can resume."""
        sink = self._open_sink()
        for segment in begun:
            sink.begin(segment)
        sink.send(rows)
        return sink.flush()

    def _open_sink(self) -> Sink:
        if self._sink is None:
            self._sink = self._make(self._state.own)
        return self._sink

    def _note(self, state: SinkState) -> None:
        # Written only if something has changed: the thread comes by each second.
        if state != self._state:
            write_state(self._train_dir, self._name, state)
            self._state = state


def unsent_rows(news: News, floor: Mapping[str, int], added: Collection[str]) -> Iterator[NewRow]:
    """Yield the rows after the last one that was sent, and all rows of the runs that are added."""
    for table, rows in news.rows.items():
        yield from (row for row in rows if row.run in added or row.id > floor.get(table, 0))


def has_tables(path: Path) -> bool:
    """Return whether a store has its tables, which are made a moment after the file."""
    if not path.is_file():
        return False
    try:
        with open_to_read(path) as connection:
            return not is_empty(connection)
    except sqlite3.DatabaseError:
        return True  # the reader, which opens the file next, reports the fault
