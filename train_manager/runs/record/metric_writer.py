"""Figures of a training on their way into ``metrics.sqlite``: appended by the training, written by a thread.

    training ──append──> queue ──twice a second──> thread ──one transaction──> metrics.sqlite

The training takes no lock. The thread starts with the first figure and ends when none come. While the file cannot be
written the figures wait, up to a limit, and a warning tells it.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import sqlite3
import sys
import threading
import warnings
import weakref
from array import array
from collections import deque
from collections.abc import Iterable, Sequence
from pathlib import Path
from time import monotonic
from typing import Any, Final, final

from train_manager.files.atomic import shown_path
from train_manager.runs.record.batch_figures import BatchFigures
from train_manager.runs.record.metric_database import MetricDatabase
from train_manager.runs.record.metric_items import Item, Other, Queued
from train_manager.runs.record.metric_rows import Numbers
from train_manager.runs.record.metric_schema import Series
from train_manager.telling.errors import InputError
from train_manager.telling.source_locations import users_level

EVERY: Final = 0.5  # seconds between two transactions, so that a crash loses less than one second
IDLE: Final = 2.0  # seconds without a figure, outside of a run, until the file is closed and the thread ends
LIMIT: Final = 1_000_000  # figures that wait; some 150 MB
MOST_AT_ONCE: Final = 50_000  # in one transaction
PATIENCE: Final = 10.0  # seconds that the end of a run, and a fork, wait for a transaction


class PlainNumbers:
    """Makes numbers of numbers, without torch."""

    def __call__(self, values: Sequence[Any]) -> Sequence[float]:
        """Return numbers as floats."""
        return [float(value) for value in values]

    def blobs(self, blobs: Sequence[tuple[str, Any]]) -> Sequence[bytes]:
        """Return numbers as bytes, the lowest byte first."""
        return [packed(kind, numbers) for kind, numbers in blobs]


def packed(kind: str, numbers: Iterable[Any]) -> bytes:
    """Return numbers as bytes, the lowest byte first."""
    found = array(kind, numbers)
    if sys.byteorder == "big":
        found.byteswap()
    return found.tobytes()


@final
class MetricWriter:
    """Write figures into a file, in a thread.

    >>> import tempfile
    >>> from train_manager.runs.record.metric_reader import MetricReader
    >>> path = Path(tempfile.mkdtemp()) / "metrics.sqlite"
    >>> writer = MetricWriter(path, "0123456789abcdef")
    >>> loss = writer.number(Series("loss", "train_step_batch"))
    >>> writer.append((loss, 1, 0, 1700000000.0, .5))
    >>> writer.close()
    >>> [found.values for found in MetricReader(path).scalars("loss").values()]
    [[0.5]]

    Args:
        path: the file; it is made with the first figure.
        run: the run_id.
        numbers: makes numbers of values; it is called by the thread.
    """

    def __init__(self, path: Path, run: str, numbers: Numbers | None = None) -> None:
        for earlier in list(_all):  # of this process in this folder: what it has begun must not come after this
            if earlier.database.path == path and earlier.waiting:
                earlier.flush()
        self._channel = channel = Channel(MetricDatabase(path, run, numbers or PlainNumbers()))
        self._end = weakref.finalize(self, channel.end)  # also as the interpreter ends

    def number(self, series: Series) -> int:
        """Return the number that stands for a series in what is appended."""
        return self._channel.numbers(series)

    def append(self, queued: Queued) -> None:
        """Leave a figure, or another item, for the thread."""
        self._channel.queue.append(queued)
        self.look()

    @property
    def queue(self) -> deque[Queued]:
        """What waits for the thread. While a run is open, rows of batches are appended here, with a ``look`` at times.

        The first row of a run goes through ``append``, which starts the thread.
        """
        return self._channel.queue

    def look(self) -> None:
        """Start the thread if none runs, drop what is too much, and tell what has gone wrong."""
        channel = self._channel
        if channel.needs_care or len(channel.queue) > LIMIT:
            channel.care()

    @property
    def keeps_open(self) -> bool:
        """Whether the file stays open while no figures come, as in a run."""
        return self._channel.keeps_open

    @keeps_open.setter
    def keeps_open(self, value: bool) -> None:
        self._channel.keeps_open = value

    def flush(self) -> None:
        """Write what waits, now."""
        self._channel.flush()

    def close(self) -> None:
        """Write what waits, and close the file; a further figure opens it again."""
        self._channel.flush(close=True)

    @property
    def waiting(self) -> int:
        """How many figures wait to be written."""
        return self._channel.waiting

    @property
    def lost(self) -> int:
        """How many figures were thrown away, because too many waited."""
        return self._channel.lost


@final
class Channel:
    """What the training and the thread share; the thread holds it, so that the writer itself can be collected.

    Attributes:
        queue: what the training has appended, always the same object; ``append`` and ``popleft`` of a deque need no
            lock.
        numbers: of the series.
        needs_care: whether an append must call ``care``: no thread runs, or there is something to tell.
        keeps_open: whether the file stays open while no figures come.
        lost: figures that were thrown away, because too many waited.
        refused: figures that cannot be stored.
    """

    def __init__(self, database: MetricDatabase) -> None:
        self.database = database
        self.queue: deque[Queued] = deque()
        self.numbers = SeriesNumbers(database.rows.series)
        self._figures = BatchFigures(self.numbers)
        self.keeps_open = False
        self.lost = self.refused = 0
        self._reset()
        _all.add(self)

    def _reset(self) -> None:
        self.queue.clear()
        self.needs_care = True
        self._waiting: list[Item] = []  # made of what was in the queue, and not written yet
        self._lock = threading.Lock()  # of the database; the training takes it only to flush and to close
        self._starting = threading.Lock()
        self._wake = threading.Event()
        self._thread: threading.Thread | None = None
        self._is_closing = self._has_ended = False
        self._problem: str | None = None
        self._is_told = False
        self._refusal: str | None = None
        self._told_lost = self._told_refused = self._told_rewritten = 0

    @property
    def waiting(self) -> int:
        """How many items wait to be written."""
        return len(self.queue) + len(self._waiting)

    # ---- the side of the training --------------------------------------------------------------------------------

    def care(self) -> None:
        """Start the thread, if there is none; drop the newest figures, if too many wait; tell of a problem."""
        while len(self.queue) > LIMIT:
            newest = self.queue.pop()
            if type(newest) not in (tuple, Other):  # not a figure: what says where figures belong
                self.queue.append(newest)
                break
            self.lost += 1
        self.needs_care = False
        if self._thread is None:
            self._start()
        self.tell()

    def _start(self) -> None:
        with self._starting:
            if self._thread is None and not self._has_ended:
                thread = threading.Thread(target=self._work, name="train-manager-metrics", daemon=True)
                with contextlib.suppress(RuntimeError):  # the interpreter is ending; `end` writes what is left
                    thread.start()
                    self._thread = thread

    def tell(self) -> None:
        """Warn of what the thread has met, once."""
        if self.database.rewritten > self._told_rewritten:
            self._told_rewritten = self.database.rewritten
            what = f"{shown_path(self.database.path)} was removed or replaced, so it lacks the figures of before"
            warnings.warn(what, RuntimeWarning, stacklevel=users_level())
        if self.refused > 10 * self._told_refused:
            self._told_refused = self.refused
            warnings.warn(f"{self._refusal} ({self.refused} so far)", RuntimeWarning, stacklevel=users_level())
        if self._problem is not None and (not self._is_told or self.lost > 10 * self._told_lost):
            self._is_told, self._told_lost = True, self.lost
            lost = f", {self.lost} are lost" if self.lost else ""
            what = f"{self._problem}; {self.waiting} figures wait{lost}; the training goes on"
            warnings.warn(what, RuntimeWarning, stacklevel=users_level())

    def flush(self, *, close: bool = False) -> None:
        """Write what waits, in the calling thread; with ``close``, close the file too."""
        if not self._lock.acquire(timeout=PATIENCE):
            self._problem = (
                f"{shown_path(self.database.path)} cannot be written: a transaction takes over {PATIENCE:g} s"
            )
        else:
            try:
                self._write_all()
                if close:
                    self.database.put_away()
            finally:
                self._lock.release()
        if close:
            self._is_closing = True
            self._wake.set()
        self.tell()

    def end(self) -> None:
        """Close for good: the writer was collected, or the interpreter ends."""
        self._has_ended = True
        if threading.current_thread() is not self._thread:  # which may collect too, and then closes itself
            self.flush(close=True)
            if self.waiting:
                what = f"{self._problem}; {self.waiting + self.lost} figures are lost"
                warnings.warn(what, RuntimeWarning, stacklevel=users_level())
        self._wake.set()

    # ---- the side of the thread ----------------------------------------------------------------------------------

    def _work(self) -> None:
        wrote_at = monotonic()
        while True:
            self._wake.wait(EVERY)
            self._wake.clear()
            with self._lock:
                if self.waiting:
                    wrote_at = monotonic()
                    self._write_all()
                is_idle = not self.keeps_open and monotonic() - wrote_at > IDLE
                if self._is_closing or self._has_ended or is_idle:
                    self.database.put_away()
                    if self._leave():
                        return

    def _leave(self) -> bool:
        """End the thread, unless something has come meanwhile, or a run has opened, whose rows need no care."""
        self._is_closing = False
        self._thread, self.needs_care = None, True
        if self._has_ended or not (self.queue or self.keeps_open):
            return True
        self._thread = threading.current_thread()
        return False

    def _write_all(self) -> None:
        """Write what waits; an item that cannot be stored is thrown away, so that the others can be."""
        at_once = MOST_AT_ONCE
        while self._has_taken():
            try:
                self.database.write(self._waiting[:at_once])
            except (sqlite3.OperationalError, OSError, InputError) as error:
                return self._keep_waiting(error)
            except Exception as error:  # also of a device: whatever it is, the thread goes on, and it is told
                if type(error) is sqlite3.DatabaseError:  # the file is damaged
                    return self._keep_waiting(error)
                if at_once > 1:
                    at_once = min(at_once, len(self._waiting)) // 2 or 1  # to find which item it is
                    continue
                self._refuse(self._waiting[0], error)
            del self._waiting[:at_once]
            at_once = min(2 * at_once, MOST_AT_ONCE)
            self._problem, self._is_told = None, False
        if self.database.rewritten > self._told_rewritten:
            self.needs_care = True

    def _has_taken(self) -> bool:
        """Make figures of what is in the queue, and return whether any wait."""
        while len(self._waiting) < MOST_AT_ONCE:
            try:
                queued = self.queue.popleft()
            except IndexError:
                break
            self._waiting += self._figures.of(queued)
        return bool(self._waiting)

    def _keep_waiting(self, error: Exception) -> None:
        self._problem = f"{shown_path(self.database.path)} cannot be written: {what_of(error)}"
        self.needs_care = True

    def _refuse(self, item: Item, error: Exception) -> None:
        self.refused += 1
        name = self.database.rows.name_of(item)
        self._refusal = f"{shown_path(self.database.path)} lacks a figure of {name!r}, which cannot be stored: {error}"
        self.needs_care = True

    # ---- forks ---------------------------------------------------------------------------------------------------

    def before_fork(self) -> None:
        """Close the file, since a child must not have it open too; the next transaction opens it again."""
        self._is_held = self._lock.acquire(timeout=PATIENCE)
        if self._is_held:
            self.database.close()

    def after_fork_in_parent(self) -> None:
        """Let the thread go on."""
        if self._is_held:
            self._lock.release()

    def after_fork_in_child(self) -> None:
        """Begin anew without anything of the parent's: what waits is the parent's to write."""
        left = self.database.leave_to_parent()
        if left is not None:
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(left))  # never collected, for that would close it
        self._reset()


@final
class SeriesNumbers:
    """The numbers that stand for series; the training and the thread ask for them.

    Args:
        series: gets each series, at the place that is its number.
    """

    def __init__(self, series: list[Series]) -> None:
        self._series = series
        self._numbers: dict[Series, int] = {}
        self._lock = threading.Lock()

    def __call__(self, series: Series) -> int:
        """Return the number of a series; it gets one if it is new."""
        number = self._numbers.get(series)
        if number is not None:
            return number
        with self._lock:
            if series not in self._numbers:
                self._series.append(series)
                self._numbers[series] = len(self._series) - 1
            return self._numbers[series]


def what_of(error: BaseException) -> str:
    """Return what an error says, without its cure."""
    return error.what if isinstance(error, InputError) else str(error)


_all: Final[weakref.WeakSet[Channel]] = weakref.WeakSet()


def _each(method: str) -> None:
    for channel in list(_all):
        getattr(channel, method)()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=lambda: _each("before_fork"),
        after_in_parent=lambda: _each("after_fork_in_parent"),
        after_in_child=lambda: _each("after_fork_in_child"),
    )
