"""Long series in a few numbers: of each stretch of steps the mean, the lowest and the highest value, made by SQLite."""

from __future__ import annotations

import math
import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any, Final, NamedTuple

from train_manager.runs.record.metric_schema import BATCH_SIZE, BATCHES, EVALUATIONS, Series
from train_manager.runs.record.metric_segments import Segment

AT: Final = "coalesce(own_step, step)"  # the step that a metric belongs to
COUNTING: Final = "scalars JOIN temp.counting ON counting.id = segment JOIN temp.wanted ON wanted.id = series"
WIDEST: Final = 2.0**62  # whole numbers of SQLite have 64 bits; a wider stretch is bound as a float
SMALL: Final = 0.5  # share of the largest batch; a smaller batch is joined to the one before, or it would be a spike
# Each value with its step, and with the weight of its batch; the batch before a small one gets the step of the small
# one. Of several evaluations at a step the last one is taken: their mean is a value that no evaluation has given.
VALUES: Final = f"""
    SELECT
        series, {AT} + coalesce(shift, 0) AS place, first, width, epoch, time, value, coalesce(share, 1.0) AS share
    FROM {COUNTING} LEFT JOIN temp.small ON small.id = step AND stage = '{BATCHES}'
    WHERE step <= until AND (stage != '{EVALUATIONS}' OR scalars.id IN (
        SELECT max(scalars.id) FROM {COUNTING} WHERE step <= until AND stage = '{EVALUATIONS}' GROUP BY series, {AT}
    ))
"""


class Stretch(NamedTuple):
    """A series within some steps, in a few numbers.

    The last batch of an epoch may have far fewer examples than the others. The batch before is joined to it: the mean
    weights them by their examples, the lowest and the highest value leave the last batch out.

    Attributes:
        first, last: the steps of its first and its last value.
        epoch: the largest.
        time: the mean, in seconds since 1970.
        points: how many values it has; ``nans`` of them are nan, and left out of what follows.
        mean, lowest, highest: of the values; nan if there are none.
    """

    first: float
    last: float
    epoch: int
    time: float
    points: int
    nans: int
    mean: float
    lowest: float
    highest: float


def stretches_of(
    connection: sqlite3.Connection, wanted: Mapping[int, Series], segments: Mapping[int, Segment], most: int
) -> dict[Series, list[Stretch]]:
    """Return the stretches of each series, at most so many of one, in the order of their steps.

    Args:
        connection: a transaction that is open; temporary tables are made in it.
        wanted: series by their ids.
        segments: those whose rows count, by their ids.
        most: stretches of a series; each is of as many steps.
    """
    make(connection, "counting", ("until",), ((id_, min(of.until, 2.0**63)) for id_, of in segments.items()))
    make(
        connection,
        "wanted",
        ("first", "width", "stage"),
        ((id_, 0, 1, of.stage) for id_, of in wanted.items()),
    )
    # The width of a stretch needs the range of steps of its series, which is asked for first.
    small = _small_of_series(connection)
    joined = {step: (small.get(step, 1.0), step + 1 in small) for one in small for step in (one - 1, one)}
    make(connection, "small", ("share", "shift"), ((step, *of) for step, of in joined.items()))
    sql = f"SELECT series, min({AT}), max({AT}) FROM {COUNTING} WHERE step <= until GROUP BY series"
    ranges = connection.execute(sql).fetchall()
    widths = ((first, width_of(first, last, most), series) for series, first, last in ranges)
    connection.executemany("UPDATE temp.wanted SET first = ?, width = ? WHERE id = ?", widths)
    sql = (
        "SELECT series, min(place), max(place), max(epoch), avg(time), count(*), count(*) - count(value), "
        "sum(value * share) / sum(share) FILTER (WHERE value IS NOT NULL), count(*) FILTER (WHERE share = 1), "
        f"min(value) FILTER (WHERE share = 1), max(value) FILTER (WHERE share = 1) FROM ({VALUES}) "
        "GROUP BY series * 4294967296 + CAST((place - first) / width AS INTEGER)"
    )
    found: dict[Series, list[Stretch]] = {}
    for series, *numbers, mean, batches, lowest, highest in connection.execute(sql):
        ends = (lowest, highest) if batches > 1 and lowest is not None else (mean, mean)
        values = (math.nan if value is None else value for value in (mean, *ends))
        found.setdefault(wanted[series], []).append(Stretch(*numbers, *values))
    return found


def _small_of_series(connection: sqlite3.Connection) -> dict[int, float]:
    """Return the steps of small batches in the segments that count, each with its share of a usual batch."""
    sql = (
        "SELECT scalars.series, step, value FROM scalars JOIN temp.counting ON counting.id = segment "
        "JOIN series ON series.id = scalars.series "
        "WHERE name = ? AND stage = ? AND step <= until AND value IS NOT NULL ORDER BY step"
    )
    sizes: dict[int, list[tuple[float, float]]] = {}
    for series, step, size in connection.execute(sql, (BATCH_SIZE, BATCHES)):
        sizes.setdefault(series, []).append((step, size))
    return {int(step): share for of in sizes.values() for step, share in small_steps(of).items()}


def small_steps(sizes: Sequence[tuple[float, float]]) -> dict[float, float]:
    """Return the steps at which a single batch was less than half as large as the largest, and its share of that.

    >>> small_steps([(1, 64.0), (22, 4.0), (23, 64.0)])
    {22: 0.0625}
    """
    usual = max((size for _, size in sizes), default=0)
    return {
        step: size / usual
        # The series has a row where the size changes: a row one step later means that only this batch was small.
        for (step, size), (following, _) in pairwise([*sizes, (math.inf, 0.0)])
        if size < usual * SMALL and following in (step + 1, math.inf)
    }


def make(connection: sqlite3.Connection, table: str, columns: Iterable[str], rows: Iterable[tuple[Any, ...]]) -> None:
    """Make a temporary table with an id and other columns."""
    columns = ("id INTEGER PRIMARY KEY", *columns)
    connection.execute(f"CREATE TEMP TABLE {table}({', '.join(columns)})")
    connection.executemany(f"INSERT INTO temp.{table} VALUES ({', '.join('?' * len(columns))})", rows)


def width_of(first: int, last: int, most: int) -> float:
    """Return of how many steps a stretch is.

    >>> width_of(1, 3000, 1500), width_of(1, 3001, 1500), width_of(7, 7, 1500)
    (2, 3, 1)
    """
    width = -(-(last - first + 1) // most)
    return width if width < WIDEST else float(width)
