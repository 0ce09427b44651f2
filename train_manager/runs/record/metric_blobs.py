"""Arrays and histograms, as they are in the columns of ``metrics.sqlite``."""

from __future__ import annotations

import json
import sqlite3
import sys
from array import array
from typing import Any, NamedTuple, final


class StoredArray(NamedTuple):
    """An array as it was written.

    Attributes:
        step: the step that it belongs to.
        values: the numbers, row after row of a matrix.
        labels: of the values, or of the rows of a matrix; empty if none were given.
    """

    step: int
    epoch: int
    time: float
    shape: tuple[int, ...]
    values: array[float]
    labels: tuple[str, ...]


@final
class Labelled:
    """The labels of arrays that are read, each from the last row of its segment and series that has labels.

    Args:
        connection: reads rows before the first array that is asked for; None if the caller reads all rows.
    """

    def __init__(self, connection: sqlite3.Connection | None = None) -> None:
        self._connection = connection
        self._labels: dict[tuple[int, object], tuple[str, ...]] = {}  # the last labels, by segment and series

    def of(self, segment: int, series: object, written: str | None, id_: int = 0) -> tuple[str, ...]:
        """Return the labels of the next array."""
        if written is None and (segment, series) not in self._labels and self._connection is not None:
            sql = (
                "SELECT labels FROM arrays WHERE id < ? AND segment = ? AND series = ? AND labels NOT NULL "
                "ORDER BY id DESC LIMIT 1"
            )
            written, *_ = self._connection.execute(sql, (id_, segment, series)).fetchone() or (None,)
        if written is not None:
            self._labels[segment, series] = tuple(json.loads(written))
        return self._labels.setdefault((segment, series), ())


def shape_and_values(shape: str, numbers: bytes) -> tuple[tuple[int, ...], array[float]]:
    """Return the shape and the values of an array."""
    return tuple(json.loads(shape)), unpack("f", numbers)


def edges_and_counts(edges: bytes, counts: bytes) -> tuple[list[float], list[int]]:
    """Return the edges and the counts of a histogram."""
    return unpack("d", edges).tolist(), unpack("q", counts).tolist()


def unpack(kind: str, numbers: bytes) -> array[Any]:
    """Return the numbers in bytes, the lowest byte first."""
    found = array(kind, numbers)
    if sys.byteorder == "big":
        found.byteswap()
    return found
