"""Rows of the store: as they wait to be written, as they are in columns, and as Python sees them."""

from __future__ import annotations

import json
import math
import re
import sys
from array import array
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, TypeAlias

from train_manager.metrics.history_rows import metrics_of
from train_manager.runs.store.schema import Series

LARGEST: Final = 1023  # bits of the largest whole number that `float` converts
HALF: Final = re.compile("[\ud800-\udfff]")  # of a character; UTF-8 has no halves, and so SQLite has none


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


class Histogram(NamedTuple):
    """How values are distributed: the count of each bin, between its edges."""

    edges: list[float]
    counts: list[int]


class StoredFile(NamedTuple):
    """Where a file is, relative to the ``train_dir`` if it is in it, its size in bytes, and its hash."""

    path: str
    size: int
    sha256: str


Value: TypeAlias = float | StoredArray | Histogram | str | StoredFile
"""The value of a row: a number, or one of the kinds of items, each of a class of its own."""


class StoredRow(NamedTuple):
    """A row of the store.

    Attributes:
        step: the step that it belongs to; if a hook has given one, that one.
        time: seconds since 1970.
    """

    series: Series
    step: int
    epoch: int
    time: float
    value: Value


class Vector(NamedTuple):
    """An array that waits to be written."""

    values: Any  # a tensor in float32, on any device
    shape: tuple[int, ...]
    labels: tuple[str, ...]


class BinnedCounts(NamedTuple):
    """A histogram that waits to be written."""

    edges: Any  # tensors, or numbers
    counts: Any


ITEMS: Final = (Vector, BinnedCounts, str, StoredFile)
"""The values of what is not a scalar, while it waits to be written."""

Metric: TypeAlias = tuple[Series, int, int | None, int, float, Any]
"""What waits to be written: series, the step at which it was written, the step that a hook has given or None, epoch,
time, and a value: a number or a tensor of one, a Vector, a Counted, a text or a StoredFile.
"""

Row: TypeAlias = Mapping[str, Any]
"""A row of ``tm.history``."""


@dataclass(frozen=True)
class Begin:
    """A part of a run begins."""

    time: float  # seconds since 1970
    resumes: str  # the run_id of the run that it goes on from: its own if no checkpoint of another one was loaded
    step: int | None  # after which it goes on; None without a training, such as an evaluation: it cuts nothing
    history: Mapping[str, Sequence[Row]]  # all rows of each stage
    new: int = 0  # without a training: how many evaluations at the end of the history are its own


@dataclass(frozen=True)
class HistoryRow:
    """A row of the history that is new, or in place of an earlier one."""

    stage: str
    number: int  # its place among the rows of the stage
    row: Row
    time: float


# ---- items in columns ------------------------------------------------------------------------------------------------


def item_of(kind: str, form: str | None, content: Any, labels: str, step: int, epoch: int, time: float) -> Value:
    """Return the value of a row of the table ``items``."""
    if kind == "array":
        names = tuple(json.loads(labels)) if labels else ()
        return StoredArray(step, epoch, time, tuple(json.loads(form or "[]")), unpack("f", content), names)
    if kind == "histogram":
        edges = 4 + len(content) // 2  # there is one edge more than counts, each of 8 bytes
        return Histogram(unpack("d", content[:edges]).tolist(), unpack("q", content[edges:]).tolist())
    if kind == "file":
        return StoredFile(str(content), **json.loads(form or "{}"))
    return str(content)


def unpack(kind: str, numbers: bytes) -> array[Any]:
    """Return the numbers in bytes, the lowest byte first."""
    found = array(kind, numbers)
    if sys.byteorder == "big":
        found.byteswap()
    return found


def storable(text: str) -> str:
    """Return a text without halves of characters, which SQLite refuses.

    >>> storable("\\ud83d"), storable("ü")
    ('\\\\ud83d', 'ü')
    """
    return text.encode("utf-8", "backslashreplace").decode()


# ---- the history -----------------------------------------------------------------------------------------------------


def text_of_row(row: Row) -> str:
    """Return a row of the history as JSON that SQLite reads too, and whose numbers come back to the bit.

    >>> text_of_row({"epoch": 1, "loss": float("inf")})
    '{"epoch": 1, "loss": {"$float": "inf"}}'
    """
    try:
        text = json.dumps(dict(row), default=_plain, allow_nan=False, ensure_ascii=False)
    except (TypeError, ValueError, RecursionError):  # a number or a key that JSON lacks, or a circle
        text = json.dumps({name: _without_gaps(value) for name, value in row.items()}, ensure_ascii=False)
    # Half a character in a name would make the view `metrics` unreadable; as in `storable`, its code stands for it.
    return HALF.sub(lambda half: rf"\\u{ord(half[0]):x}", text)


def row_of_text(text: str) -> dict[str, Any]:
    """Return the row of a text that ``text_of_row`` has made."""
    found: dict[str, Any] = json.loads(text, object_hook=_float_of)
    return found


def metrics_in(stage: str, row: Row) -> Iterator[tuple[Series, float]]:
    """Yield the metrics of a row of the history that are numbers."""
    for name, value in metrics_of(row).items():
        if isinstance(value, float) or (isinstance(value, int) and value.bit_length() <= LARGEST):
            yield Series(name, stage, row.get("set", ""), row.get("phase") or ""), float(value)


def _plain(value: Any) -> Any:
    """Return a value that JSON lacks in another form: an array or a tensor as a list or number, else its text."""
    return value.tolist() if hasattr(value, "tolist") else repr(value)


def _without_gaps(value: Any) -> Any:
    """Return a value of a row as JSON has it; one that JSON cannot have becomes its text."""
    try:
        return _finite(json.loads(json.dumps(value, default=_plain)))
    except (TypeError, ValueError, RecursionError):
        return repr(value)


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _finite(one) for name, one in value.items()}
    if isinstance(value, list):
        return [*map(_finite, value)]
    return {"$float": repr(value)} if isinstance(value, float) and not math.isfinite(value) else value


def _float_of(found: dict[str, Any]) -> Any:
    return float(found["$float"]) if found.keys() == {"$float"} and found["$float"] in ("nan", "inf", "-inf") else found
