"""What the tests of sinks share: a sink that keeps what it is sent, and what counts in a store."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

from train_manager.runs.record.following import FollowsStore
from train_manager.runs.record.metric_news import NewRow, NewSegment
from train_manager.runs.record.metric_reader import MetricReader
from train_manager.runs.record.sink import Sink, scalars_of

Points = dict[str, list[tuple[int, float]]]


class Kept:
    """A sink that keeps rows.

    Args:
        rows: where they go.
        needs_all: whether a segment that supersedes rows needs all of them again.
        before: called with the rows before they are taken.
    """

    def __init__(self, rows: list[NewRow], needs_all: bool = False, before: Callable[[Any], object] = id) -> None:
        self.rows, self.begun, self.is_closed = rows, list[tuple[NewSegment, bool]](), False
        self._needs_all, self._before = needs_all, before

    def begin(self, segment: NewSegment, is_new: bool) -> bool:
        self.begun.append((segment, is_new))
        if self._needs_all and segment.from_step is not None and is_new:
            self.rows.clear()
        return self._needs_all and is_new

    def send(self, rows: Sequence[NewRow]) -> None:
        self._before(rows)
        self.rows += rows

    def flush(self) -> Mapping[str, Any]:
        return {"rows": len(self.rows)}

    def close(self) -> None:
        self.is_closed = True


class Keeps(FollowsStore):
    """An extension whose sink keeps what it is sent.

    Args:
        before: called with rows before they are taken.
    """

    sink: ClassVar[str] = "kept"
    package: ClassVar[str] = "json"

    def __init__(self, before: Callable[[Any], object] = id) -> None:
        self.rows: list[NewRow] = []
        self.before = before

    def make_sink(self, train_dir: Path, state: Mapping[str, Any]) -> Sink:
        del self.rows[state.get("rows", 0) :]  # what was not noted
        return Kept(self.rows, before=self.before)


def points_of(rows: Sequence[NewRow]) -> Points:
    """Return the numbers of rows by tag, in the order of steps."""
    found: Points = {}
    for row in rows:
        for tag, value in scalars_of(row):
            found.setdefault(tag, []).append((row.step, value))
    return {tag: sorted(points) for tag, points in found.items()}


def counting(train_dir: Path, run: str | None = None) -> Points:
    """Return what counts in a store."""
    rows = MetricReader(train_dir).since().rows.values()
    return points_of([row for of_table in rows for row in of_table if run in (None, row.run)])
