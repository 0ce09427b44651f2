"""Sends to a sink what is new in ``metrics.sqlite``: each row that counts, once."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from pathlib import Path
from time import thread_time
from typing import Any, Final, final

from train_manager.runs.record.metric_news import News
from train_manager.runs.record.metric_reader import MetricReader
from train_manager.runs.record.metric_schema import FILE
from train_manager.runs.record.sink import Sink
from train_manager.runs.record.sink_state import SinkState, read_state, write_state

MOST_AT_ONCE: Final = 1000

MakesSink = Callable[[Mapping[str, Any]], Sink]
"""Makes a sink of what ``flush`` of the one before has returned last."""


@final
class SinkFeed:
    """The way from a ``train_dir`` to a sink, which is made as there is something to send.

    Args:
        train_dir: the folder with ``metrics.sqlite``.
        name: of the sink.
        make: makes it.
        process: which process sends; empty if none goes on to do so.
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
        """Send what was not sent yet, note after each part what was, and return how many rows.

        Args:
            runs: whose rows are sent.
            added: those of them whose rows may be older than the last row that was sent. They are looked for from the
                first row on, and it is noted only at the end that they were sent.
            rest: called after each part with the seconds of the processor that it took.
        """
        if not (self._train_dir / FILE).is_file():
            return 0
        reader, floor, count = MetricReader(self._train_dir), self._state.ids, 0
        ids: Mapping[str, int] = {} if added else floor
        state = replace(self._state, runs=tuple(dict.fromkeys([*self._state.runs, *runs])))
        has_more = True
        while has_more:
            began = thread_time()
            news = reader.since(ids, most=MOST_AT_ONCE)
            ids, has_more = news.ids, news.has_more
            floor = {} if news.is_anew else floor
            if self._must_send_all(news, floor):
                ids, has_more = {"segments": ids["segments"]}, True
                floor = ids
                continue
            rows = [
                row
                for table, of_table in news.rows.items()
                for row in of_table
                if row.run in runs and (row.run in added or row.id > floor.get(table, 0))
            ]
            if rows:
                sink = self._opened()
                sink.send(rows)
                state = replace(state, own=sink.flush())
            state = replace(state, ids={table: max(id_, floor.get(table, 0)) for table, id_ in ids.items()})
            if not (added and has_more):
                self._note(state)
            count += len(rows)
            rest(thread_time() - began)
        return count

    def close(self) -> None:
        """Let go of the sink, and note that nobody sends."""
        sink, self._sink = self._sink, None
        if sink is not None:
            sink.close()
        if self._state.ids:
            self._note(replace(self._state, process={}))

    def _must_send_all(self, news: News, floor: Mapping[str, int]) -> bool:
        """Tell the sink which segments begin; return whether it needs all rows again."""
        last = floor.get("segments", 0)
        answers = [self._opened().begin(segment, segment.id > last) for segment in news.segments]
        return any(answers) and bool(self._state.ids)

    def _opened(self) -> Sink:
        if self._sink is None:
            self._sink = self._make(self._state.own)
        return self._sink

    def _note(self, state: SinkState) -> None:
        if state != self._state:
            write_state(self._train_dir, self._name, state)
            self._state = state
