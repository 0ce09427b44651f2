"""The parts of a run in ``metrics.sqlite``, and the rows that are written into them.

All of it runs inside of a transaction that ``database.py`` has opened.
"""

from __future__ import annotations

import copy
import json
import os
import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from time import time
from typing import TYPE_CHECKING, Any, Final, TypeAlias, final

from train_manager.runs.store.batches import Item, Written
from train_manager.runs.store.rows import (
    Begin,
    BinnedCounts,
    HistoryRow,
    Metric,
    Row,
    StoredFile,
    StoredRow,
    Vector,
    item_of,
    metrics_in,
    row_of_text,
    storable,
    text_of_row,
)
from train_manager.runs.store.schema import EPOCHS, EVALUATIONS, RunPart, Series

if TYPE_CHECKING:
    from train_manager.metrics.host_numbers import HostNumbers

TOGETHER: Final = 140  # scalars in one statement: 980 variables, of the 999 that old versions of SQLite allow
INSERT: Final = "INSERT INTO scalars(run, series, step, own_step, epoch, time, value) VALUES "
ONE: Final = "(?, ?, ?, ?, ?, ?, ?)"
MANY: Final = INSERT + ", ".join([ONE] * TOGETHER)
WIDTH: Final = ONE.count("?")
# The newest part that has the step: a run that has gone back, and then on to a later step, is in the part before. A
# kill may have lost the last rows: then it is the newest part. An evaluation, which cuts nothing, is not resumed: else
# rows would count that it has left in place.
RESUMED: Final = """
SELECT id FROM runs WHERE run = :run AND (resumes IS NULL OR step NOT NULL)
ORDER BY coalesce(step, 0) <= :step
    AND (step = :step OR EXISTS (SELECT 1 FROM scalars WHERE scalars.run = runs.id AND scalars.step >= :step)) DESC,
    id DESC LIMIT 1
"""


Told: TypeAlias = dict[RunPart, list[StoredRow]]
"""What followers are told: the rows that were written, by the part that they are of."""


@dataclass(frozen=True)
class OpenPart:
    """The part that rows go into, as the file has it."""

    row: RunPart
    is_aside: bool  # nothing was trained in it yet
    history: Mapping[tuple[str, int], str] = field(default_factory=dict)  # its rows as texts, by stage and number
    shift: int = 0  # evaluations of the part that it resumes, which its program does not have in its history


@final
class RunParts:
    """The parts of a run, of which rows go into the last one.

    A transaction writes with a copy, which is kept if it succeeds.

    Args:
        run: the run_id.
        numbers: makes numbers of values.

    Attributes:
        is_rewritten: the file was found to have lost the part.
    """

    def __init__(self, run: str, numbers: HostNumbers) -> None:
        self._manager = self._run = run  # the run_id of the TrainManager; in a forked child the run is another one
        self._numbers = numbers
        self._part: OpenPart | None = None
        self._begin: Begin | None = None  # of a part that is made with its first row, so that none stays empty
        self._ids: dict[tuple[Series, str], int] = {}  # of series with their labels, in the open file
        self._told: Told | None = None
        self.is_rewritten = False

    def copied(self, told: Told | None) -> RunParts:
        """Return a copy for a transaction."""
        found = copy.copy(self)
        found._ids, found._told, found.is_rewritten = dict(self._ids), told, False
        return found

    def forget_file(self) -> None:
        """Look up all ids again, because the file may be another one as it is opened next."""
        self._ids = {}

    def leave_to_parent(self) -> None:
        """Begin a run of its own, in a forked child."""
        self._run, self._part, self._begin, self._ids = f"{self._manager}-{os.getpid()}", None, None, {}

    def write(self, connection: sqlite3.Connection, items: Sequence[Item]) -> None:
        """Write items."""
        self._find_part_again(connection)
        scalars: list[Metric] = []  # of the present part, to be written together
        others: list[Metric] = []
        for item in items:
            if isinstance(item, tuple):
                scalars.append(item)
            elif isinstance(item, Written):
                others.append(item.metric)
            elif isinstance(item, HistoryRow):
                self._put_row(connection, item)
            else:
                self._put_metrics(connection, scalars, others)
                scalars, others, self._begin = [], [], item
                if item.step is None:  # its evaluations are in the history that it brings
                    self._present_part(connection)
        self._put_metrics(connection, scalars, others)

    # ---- parts ---------------------------------------------------------------------------------------------------

    def _present_part(self, connection: sqlite3.Connection) -> OpenPart:
        begin, self._begin = self._begin, None
        if begin is not None or self._part is None:
            # In a forked child a row may come without a Begin, which the parent has had.
            self._make_part(connection, begin or Begin(time(), self._manager, None, {}))
        assert self._part is not None, "it has just been made"
        return self._part

    def _make_part(self, connection: sqlite3.Connection, begin: Begin) -> None:
        resumes, before = self._resumed(connection, begin), self._part
        if before is not None and before.is_aside and before.row.id == resumes:
            self._part = replace(before, is_aside=begin.step is None)  # an evaluation was the beginning of a training
        else:
            row = self._run, begin.time, resumes, None if resumes is None else begin.step
            made = connection.execute("INSERT INTO runs(run, began, resumes, step) VALUES (?, ?, ?, ?)", row)
            self._part = OpenPart(RunPart(made.lastrowid or 0, *row), is_aside=begin.step is None)
        self._take_history(connection, begin, resumes)

    def _resumed(self, connection: sqlite3.Connection, begin: Begin) -> int | None:
        """Return the id of the part that a part resumes; None if there is none in this file."""
        if begin.step is not None:
            found = connection.execute(RESUMED, {"run": begin.resumes, "step": begin.step}).fetchone()
            return None if found is None else int(found[0])
        # What goes on from the run counts after the evaluation too.
        newest = "SELECT max(counting.run) FROM counting JOIN runs ON runs.id = part WHERE runs.run = ?"
        (found,) = connection.execute(newest, (begin.resumes,)).fetchone()
        if found is None and begin.resumes == self._manager:
            # An evaluation of a program that has loaded no checkpoint: the training of the folder still counts.
            (found,) = connection.execute("SELECT max(id) FROM runs").fetchone()
        return None if found is None else int(found)

    def _find_part_again(self, connection: sqlite3.Connection) -> None:
        """Begin the part anew if the file has lost it, with the history that it had."""
        part = self._part
        sql = "SELECT 1 FROM runs WHERE id = ? AND run = ? AND began = ?"
        if part is None or connection.execute(sql, part.row[:3]).fetchone():
            return
        self.is_rewritten = True
        made = connection.execute("INSERT INTO runs(run, began) VALUES (?, ?)", part.row[1:3])
        self._part = replace(part, row=RunPart(made.lastrowid or 0, *part.row[1:3], None, None))
        for (stage, number), text in part.history.items():
            put_row(connection, self._part.row.id, stage, number, time(), text)

    # ---- the history ---------------------------------------------------------------------------------------------

    def _take_history(self, connection: sqlite3.Connection, begin: Begin, resumes: int | None) -> None:
        """Write the history of a part that begins, as a whole."""
        assert self._part is not None, "it has just been made"
        sql = "SELECT stage, number, time, row FROM history WHERE run = ? ORDER BY stage, number"
        before = connection.execute(sql, (resumes,)).fetchall()
        # Of an evaluation that this training begins with; it may have had rows that a program has taken out since.
        connection.execute("DELETE FROM history WHERE run = ?", (self._part.row.id,))
        known = {(stage, text): at for stage, _, at, text in before}
        given = {stage: [*map(text_of_row, rows)] for stage, rows in begin.history.items()}
        shift = 0
        if begin.step is None and resumes is not None:
            # What was evaluated comes after all rows of the part that it resumes.
            own = given.get(EVALUATIONS, [])
            old = {stage: [text for of, _, _, text in before if of == stage] for stage in (EPOCHS, EVALUATIONS)}
            kept = len(own) - begin.new
            given = {**old, EVALUATIONS: [*old[EVALUATIONS], *own[kept:]]}
            shift = len(old[EVALUATIONS]) - kept
        history = {(stage, number): text for stage, texts in given.items() for number, text in enumerate(texts)}
        for (stage, number), text in history.items():
            put_row(connection, self._part.row.id, stage, number, known.get((stage, text), begin.time), text)
            if (stage, text) not in known:
                self._tell_of_row(stage, row_of_text(text), {}, begin.time)
        self._part = replace(self._part, history=history, shift=shift)

    def _put_row(self, connection: sqlite3.Connection, item: HistoryRow) -> None:
        part, text = self._present_part(connection), text_of_row(item.row)
        place = item.stage, item.number + (part.shift if item.stage == EVALUATIONS else 0)
        before = part.history.get(place)
        if text != before:
            put_row(connection, part.row.id, *place, item.time, text)
            if text not in part.history.values():  # else it has moved, because a row before it was replaced
                self._tell_of_row(item.stage, item.row, row_of_text(before or "{}"), item.time)
            self._part = replace(part, history={**part.history, place: text})

    def _tell_of_row(self, stage: str, row: Row, before: Row, at: float) -> None:
        """Tell followers of the new metrics of a row; of those of an epoch once it is whole."""
        if self._told is not None and not row.get("partial"):
            known = {} if before.get("partial") else before
            new = [found for found in metrics_in(stage, row) if known.get(found[0].name) != row[found[0].name]]
            self._tell(StoredRow(series, row["step"], row["epoch"], at, value) for series, value in new)

    def _tell(self, rows: Iterable[StoredRow]) -> None:
        if self._told is not None and self._part is not None:
            self._told.setdefault(self._part.row, []).extend(rows)

    # ---- metrics -------------------------------------------------------------------------------------------------

    def _put_metrics(self, connection: sqlite3.Connection, scalars: Sequence[Metric], others: Sequence[Metric]) -> None:
        if scalars or others:
            part = self._present_part(connection).row.id
            # All tensors at once: a device is waited for once, and not for each number.
            self._put_scalars(connection, part, scalars, self._numbers([metric[5] for metric in scalars]))
            blobs = self._numbers.blobs([blob for metric in others for blob in blobs_of(metric[5])])
            self._put_items(connection, part, others, iter(blobs))

    def _put_scalars(
        self, connection: sqlite3.Connection, part: int, metrics: Sequence[Metric], values: Sequence[float]
    ) -> None:
        ids = self._ids
        flat: list[Any] = []
        for (series, step, own_step, epoch, at, _), value in zip(metrics, values, strict=True):
            id_ = ids.get((series, "")) or self._id_of(connection, series)
            flat += (part, id_, step, own_step, epoch, at, value)
        insert(connection, flat)
        self._tell(
            StoredRow(series, step if own_step is None else own_step, epoch, at, value)
            for (series, step, own_step, epoch, at, _), value in zip(metrics, values, strict=True)
        )

    def _put_items(
        self, connection: sqlite3.Connection, part: int, metrics: Sequence[Metric], blobs: Iterator[bytes]
    ) -> None:
        for series, step, own_step, epoch, at, value in metrics:
            labels = json.dumps(value.labels) if isinstance(value, Vector) and value.labels else ""
            columns = columns_of(value, blobs)
            row = part, self._id_of(connection, series, labels), step, own_step, epoch, at, *columns
            connection.execute("INSERT INTO items VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", row)
            if self._told is not None:
                step = step if own_step is None else own_step
                self._tell([StoredRow(series, step, epoch, at, item_of(*columns, labels, step, epoch, at))])

    def _id_of(self, connection: sqlite3.Connection, series: Series, labels: str = "") -> int:
        """Return the id of a series; it is made if it is new."""
        if (series, labels) not in self._ids:
            row = (*map(storable, series), storable(labels))
            connection.execute(
                "INSERT OR IGNORE INTO series(name, stage, datasource, phase, labels) VALUES (?, ?, ?, ?, ?)", row
            )
            sql = "SELECT id FROM series WHERE name = ? AND stage = ? AND datasource = ? AND phase = ? AND labels = ?"
            (self._ids[series, labels],) = connection.execute(sql, row).fetchone()
        return self._ids[series, labels]


def blobs_of(value: Any) -> list[tuple[str, Any]]:
    """Return the numbers of an item that become bytes, with their kinds."""
    if isinstance(value, Vector):
        return [("f", value.values)]
    return [("d", value.edges), ("q", value.counts)] if isinstance(value, BinnedCounts) else []


def columns_of(value: Any, blobs: Iterator[bytes]) -> tuple[str, str | None, Any]:
    """Return kind, form and content of an item; its numbers are the next of the bytes."""
    if isinstance(value, Vector):
        return "array", json.dumps(value.shape), next(blobs)
    if isinstance(value, BinnedCounts):
        return "histogram", None, next(blobs) + next(blobs)
    if isinstance(value, StoredFile):
        return "file", json.dumps({"size": value.size, "sha256": value.sha256}), value.path
    return "text", None, value


def put_row(connection: sqlite3.Connection, part: int, stage: str, number: int, at: float, text: str) -> None:
    """Write a row of the history, in the place of the one with this number if there is one."""
    connection.execute("INSERT OR REPLACE INTO history VALUES (?, ?, ?, ?, ?)", (part, stage, number, at, text))


def insert(connection: sqlite3.Connection, flat: list[Any]) -> None:
    """Insert scalars, many with each statement."""
    # Not `executemany`: it releases the GIL for each row, and waits for it up to 5 ms while the training runs Python.
    width = WIDTH * TOGETHER
    whole = len(flat) - len(flat) % width
    for start in range(0, whole, width):
        connection.execute(MANY, flat[start : start + width])
    if rest := flat[whole:]:
        connection.execute(INSERT + ", ".join([ONE] * (len(rest) // WIDTH)), rest)
