"""Which rows of ``metrics.sqlite`` count: each segment has a last step that does."""

from __future__ import annotations

import sqlite3
from typing import NamedTuple

from train_manager.runs.record.metric_schema import has_trainings


class Segment(NamedTuple):
    """The run of a segment, and the last step of it that counts."""

    run: str
    until: float


def segments_of(connection: sqlite3.Connection, run: str | None) -> dict[int, Segment]:
    """Return the segments by id; with ``run`` only the segments of that run, as if there were no others."""
    training = "training" if has_trainings(connection) else "0"
    sql = f"SELECT id, run, from_step, until_step, {training} FROM segments ORDER BY id DESC"
    rows = connection.execute(sql).fetchall()
    if run is None:
        # -1: no row counts, because the segment is of another training than the last one.
        untils = {id_: float("inf") if until is None else until for id_, _, _, until, _ in rows}
        return {id_: Segment(of, untils[id_] if training == rows[0][4] else -1) for id_, of, _, _, training in rows}
    found, until = {}, float("inf")
    # From the last segment back: a segment counts up to the smallest step that a later one builds on.
    for id_, _, from_step, *_ in (row for row in rows if row[1] == run):
        found[id_] = Segment(run, -1 if from_step is None else until)
        until = until if from_step is None else min(until, from_step)
    return found
