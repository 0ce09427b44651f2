"""Which rows of ``metrics.sqlite`` count: each segment has a last step that does."""

from __future__ import annotations

import sqlite3
from typing import NamedTuple


class Segment(NamedTuple):
    """The run of a segment, and the last step of it that counts."""

    run: str
    until: float


def segments_of(connection: sqlite3.Connection, run: str | None) -> dict[int, Segment]:
    """Return the segments; with ``run`` those of one, as if there were no others."""
    rows = connection.execute("SELECT id, run, from_step, until_step FROM segments ORDER BY id DESC").fetchall()
    if run is None:
        return {id_: Segment(of, float("inf") if until is None else until) for id_, of, _, until in rows}
    found, until = {}, float("inf")
    for id_, _, from_step, _ in (row for row in rows if row[1] == run):
        found[id_] = Segment(run, -1 if from_step is None else until)
        until = until if from_step is None else min(until, from_step)
    return found
