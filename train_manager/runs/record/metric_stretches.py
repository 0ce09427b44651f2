"""Long series in a few numbers: of each stretch of steps the mean, the lowest and the highest value, made by SQLite."""

from __future__ import annotations

import math
import sqlite3
from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple

from train_manager.runs.record.metric_schema import Series
from train_manager.runs.record.metric_segments import Segment

AT: Final = "coalesce(own_step, step)"
COUNTING: Final = "scalars JOIN temp.counting ON counting.id = segment JOIN temp.wanted ON wanted.id = series"
WIDEST: Final = 2.0**62  # a whole number that SQLite holds; wider ones go as floats


class Stretch(NamedTuple):
    """What a series has come to within some steps.

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
        connection: a transaction that is open; two temporary tables are made in it.
        wanted: series by their ids.
        segments: those whose rows count, by their ids.
        most: stretches of a series; each is of as many steps.
    """
    make(connection, "counting", ("until",), ((id_, min(of.until, 2.0**63)) for id_, of in segments.items()))
    make(connection, "wanted", ("first", "width"), ((id_, 0, 1) for id_ in wanted))
    sql = f"SELECT series, min({AT}), max({AT}) FROM {COUNTING} WHERE step <= until GROUP BY series"
    ranges = connection.execute(sql).fetchall()
    widths = ((first, width_of(first, last, most), series) for series, first, last in ranges)
    connection.executemany("UPDATE temp.wanted SET first = ?, width = ? WHERE id = ?", widths)
    sql = (
        f"SELECT series, min({AT}), max({AT}), max(epoch), avg(time), count(*), count(*) - count(value), "
        f"avg(value), min(value), max(value) FROM {COUNTING} WHERE step <= until "
        f"GROUP BY series * 4294967296 + CAST(({AT} - first) / width AS INTEGER)"
    )
    found: dict[Series, list[Stretch]] = {}
    for series, *numbers, mean, lowest, highest in connection.execute(sql):
        values = (math.nan if value is None else value for value in (mean, lowest, highest))
        found.setdefault(wanted[series], []).append(Stretch(*numbers, *values))
    return found


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
