"""Metrics of a run on their way into ``metrics.sqlite``: appended by the run, written by a thread.

    training ──append──> queue ──twice a second──> thread ──one transaction──> metrics.sqlite

The training takes no lock. The thread starts with the first metric and ends when none come. While the file cannot be
written, the metrics wait in memory, up to a limit, and a warning reports it.
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

from train_manager.files.atomic import quote_path
from train_manager.runs.record.batch_metrics import BatchMetrics
from train_manager.runs.record.metric_database import MetricDatabase
from train_manager.runs.record.metric_items import Item, Other, Queued
from train_manager.runs.record.metric_rows import Numbers
from train_manager.runs.record.metric_schema import Series
from train_manager.telling.errors import InputError
from train_manager.telling.source_locations import users_level

EVERY: Final = 0.5  # seconds between two transactions, so that a crash loses less than one second
IDLE: Final = 2.0  # seconds without a metric, outside of a run, until the file is closed and the thread ends
LIMIT: Final = 1_000_000  # metrics that may wait, which take some 150 MB; further metrics are thrown away
MOST_AT_ONCE: Final = 50_000  # metrics of one transaction
PATIENCE: Final = 10.0  # seconds that the end of a run, and a fork, wait for a transaction


class PlainNumbers:
    """Makes numbers of numbers, without torch."""

    def __call__(self, values: Sequence[Any]) -> Sequence[float]:
        """Return numbers as floats."""
        return [float(value) for value in values]

    def blobs(self, blobs: Sequence[tuple[str, Any]]) -> Sequence[bytes]:
        """Return numbers as bytes, the lowest byte first."""
        return [pack(kind, numbers) for kind, numbers in blobs]


def pack(kind: str, numbers: Iterable[Any]) -> bytes:
    """Return numbers as bytes, the lowest byte first."""
    found = array(kind, numbers)
    if sys.byteorder == "big":
        found.byteswap()
    return found.tobytes()


@final
class BackgroundWriter:
    """Write metrics into a file, in a thread.

    >>> import tempfile
    >>> from train_manager.runs.record.metric_reader import MetricReader
    >>> path = Path(tempfile.mkdtemp()) / "metrics.sqlite"
    >>> writer = BackgroundWriter(path, "0123456789abcdef")
    >>> loss = writer.number(Series("loss", "train_step_batch"))
    >>> writer.append((loss, 1, 0, 1700000000.0, .5))
    >>> writer.close()
    >>> [found.values for found in MetricReader(path).scalars("loss").values()]
    [[0.5]]

    Args:
        path: the file; it is made with the first metric.
        run: the run_id.
        numbers: makes numbers of values; it is called by the thread.
    """

    def __init__(self, path: Path, run: str, numbers: Numbers | None = None) -> None:
        # An earlier writer of this file may still hold metrics: they must be written before the metrics of this run.
        for earlier in list(_all):
            if earlier.database.path == path and earlier.waiting:
                earlier.flush()
        self._channel = channel = Channel(MetricDatabase(path, run, numbers or PlainNumbers()))
        self._end = weakref.finalize(self, channel.end)  # called as this object is collected, or the interpreter ends

    def number(self, series: Series) -> int:
        """Return the number that stands for a series in appended items."""
        return self._channel.numbers(series)

    def append(self, queued: Queued) -> None:
        """Leave a metric, or another item, for the thread."""
        self._channel.queue.append(queued)
        self.look()

    @property
    def queue(self) -> deque[Queued]:
        """What waits for the thread. While a run is open, rows of batches are appended here, with a ``look`` at times.

        The first row of a run goes through ``append``, which starts the thread.
        """
        return self._channel.queue

    def look(self) -> None:
        """Start the thread if none runs, drop metrics beyond the limit, and warn of problems."""
        channel = self._channel
        if channel.needs_care or len(channel.queue) > LIMIT:
            channel.care()

    @property
    def keeps_open(self) -> bool:
        """Whether the file stays open while no metrics come, as in a run."""
        return self._channel.keeps_open

    @keeps_open.setter
    def keeps_open(self, value: bool) -> None:
        self._channel.keeps_open = value

    def flush(self) -> None:
        """Write the waiting metrics now."""
        self._channel.flush()

    def close(self) -> None:
        """Write the waiting metrics, and close the file; a further metric opens it again."""
        self._channel.flush(close=True)

    @property
    def waiting(self) -> int:
        """How many metrics wait to be written."""
        return self._channel.waiting

    @property
    def lost(self) -> int:
        """How many metrics were thrown away, because too many waited."""
        return self._channel.lost


@final
class Channel:
    """The state that the training and the thread share."""

    # The thread refers to this object and not to the BackgroundWriter, which could never be collected otherwise.

    def __init__(self, database: MetricDatabase) -> None:
        self.database = database
        # Appended to by the training. Always the same deque, whose `append` and `popleft` are atomic without a lock.
        self.queue: deque[Queued] = deque()
        self.numbers = SeriesNumbers(database.rows.series)
        self._metrics = BatchMetrics(self.numbers)
        self.keeps_open = False  # whether the file stays open while no metrics come
        self.lost = self.refused = 0  # metrics thrown away beyond LIMIT, and metrics that SQLite cannot store
        self._reset()
        _all.add(self)

    def _reset(self) -> None:
        # Also called in a forked child, where the locks may be held and the thread does not exist.
        self.queue.clear()
        self.needs_care = True  # whether the next append must call `care`: no thread runs, or there is a warning
        self._waiting: list[Item] = []  # taken from the queue, and not written yet
        self._lock = threading.Lock()  # guards the database; the training takes it only to flush and to close
        self._starting = threading.Lock()  # two threads of a program may append the first metric at once
        self._wake = threading.Event()  # ends the thread's wait between two transactions
        self._thread: threading.Thread | None = None
        self._is_closing = self._has_ended = False  # asks the thread to end: until the next metric, and for good
        self._problem: str | None = None  # why the file cannot be written at present
        self._has_warned = False  # of `_problem`
        self._refusal: str | None = None  # why the last refused metric could not be stored
        # The values of `lost`, `refused` and `database.rewritten` at the last warning of each.
        self._warned_lost = self._warned_refused = self._warned_rewritten = 0

    @property
    def waiting(self) -> int:
        """How many items wait to be written."""
        return len(self.queue) + len(self._waiting)

    # ---- the side of the training --------------------------------------------------------------------------------

    def care(self) -> None:
        """Start the thread if there is none, drop the newest metrics if too many wait, and warn of problems."""
        while len(self.queue) > LIMIT:
            newest = self.queue.pop()
            # Not a metric, but the begin of a segment or a position: without it later metrics would be stored wrongly.
            if type(newest) not in (tuple, Other):
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
                # As the interpreter ends no thread can be started; `end` then writes the queue.
                with contextlib.suppress(RuntimeError):
                    thread.start()
                    self._thread = thread

    def tell(self) -> None:
        """Warn once of each problem that the thread has met."""
        if self.database.rewritten > self._warned_rewritten:
            self._warned_rewritten = self.database.rewritten
            what = f"{quote_path(self.database.path)} was removed or replaced, so it lacks the metrics of before"
            warnings.warn(what, RuntimeWarning, stacklevel=users_level())
        # Again only after ten times as many: a metric that is refused in each step would fill the terminal.
        if self.refused > 10 * self._warned_refused:
            self._warned_refused = self.refused
            warnings.warn(f"{self._refusal} ({self.refused} so far)", RuntimeWarning, stacklevel=users_level())
        if self._problem is not None and (not self._has_warned or self.lost > 10 * self._warned_lost):
            self._has_warned, self._warned_lost = True, self.lost
            lost = f", {self.lost} are lost" if self.lost else ""
            what = f"{self._problem}; {self.waiting} metrics wait{lost}; the run continues"
            warnings.warn(what, RuntimeWarning, stacklevel=users_level())

    def flush(self, *, close: bool = False) -> None:
        """Write the waiting metrics in the calling thread; with ``close``, close the file too."""
        if not self._lock.acquire(timeout=PATIENCE):
            self._problem = (
                f"{quote_path(self.database.path)} cannot be written: a transaction takes over {PATIENCE:g} s"
            )
        else:
            try:
                self._write_all()
                if close:
                    self.database.close_without_log()
            finally:
                self._lock.release()
        if close:
            self._is_closing = True
            self._wake.set()
        self.tell()

    def end(self) -> None:
        """Close for good: the writer was collected, or the interpreter ends."""
        self._has_ended = True
        # The garbage collector may call this in the thread itself, which holds the lock and closes the file anyway.
        if threading.current_thread() is not self._thread:
            self.flush(close=True)
            if self.waiting:
                what = f"{self._problem}; {self.waiting + self.lost} metrics are lost"
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
                    self.database.close_without_log()
                    if self._leave():
                        return

    def _leave(self) -> bool:
        """End the thread, unless a metric has come meanwhile, or a run has opened."""
        self._is_closing = False
        # Before the queue is looked at: the training appends to it without `care` as long as it sees a thread.
        self._thread, self.needs_care = None, True
        if self._has_ended or not (self.queue or self.keeps_open):
            return True
        self._thread = threading.current_thread()
        return False

    def _write_all(self) -> None:
        """Write the waiting metrics; an item that cannot be stored is thrown away, so that the others can be."""
        at_once = MOST_AT_ONCE
        while self._take_from_queue():
            try:
                self.database.write(self._waiting[:at_once])
            except (sqlite3.OperationalError, OSError, InputError) as error:
                return self._keep_waiting(error)
            except Exception as error:  # of SQLite, of a value, or of a device whose tensor is read: the thread stays
                if type(error) is sqlite3.DatabaseError:  # this very class: the file is damaged
                    return self._keep_waiting(error)
                if at_once > 1:
                    at_once = min(at_once, len(self._waiting)) // 2 or 1  # bisects the items for the one that fails
                    continue
                self._refuse(self._waiting[0], error)
            del self._waiting[:at_once]
            at_once = min(2 * at_once, MOST_AT_ONCE)
            self._problem, self._has_warned = None, False
        if self.database.rewritten > self._warned_rewritten:
            self.needs_care = True

    def _take_from_queue(self) -> bool:
        """Turn the items of the queue into metrics, and return whether any wait."""
        while len(self._waiting) < MOST_AT_ONCE:
            try:
                queued = self.queue.popleft()
            except IndexError:
                break
            self._waiting += self._metrics.of(queued)
        return bool(self._waiting)

    def _keep_waiting(self, error: Exception) -> None:
        self._problem = f"{quote_path(self.database.path)} cannot be written: {what_of(error)}"
        self.needs_care = True

    def _refuse(self, item: Item, error: Exception) -> None:
        self.refused += 1
        name = self.database.rows.name_of(item)
        self._refusal = f"{quote_path(self.database.path)} lacks a metric of {name!r}, which cannot be stored: {error}"
        self.needs_care = True

    # ---- forks ---------------------------------------------------------------------------------------------------

    def before_fork(self) -> None:
        """Close the file; the next transaction opens it again."""
        # SQLite forbids a connection to cross a fork: closing it in the child would release the locks of the parent.
        self._is_held = self._lock.acquire(timeout=PATIENCE)
        if self._is_held:
            self.database.close()

    def after_fork_in_parent(self) -> None:
        """Let the thread continue."""
        if self._is_held:
            self._lock.release()

    def after_fork_in_child(self) -> None:
        """Drop all items, which the parent writes, and the parent's connection."""
        left = self.database.leave_to_parent()
        if left is not None:
            # One reference too many: if the connection was collected here, it would be closed.
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(left))
        self._reset()


@final
class SeriesNumbers:
    """The numbers that stand for series, for the training and for the thread.

    Args:
        series: gets each series, at the place that is its number.
    """

    def __init__(self, series: list[Series]) -> None:
        self._series = series
        self._numbers: dict[Series, int] = {}
        self._lock = threading.Lock()

    def __call__(self, series: Series) -> int:
        """Return the number of a series; it gets one if it is new."""
        # The usual case needs no lock: a number never changes.
        number = self._numbers.get(series)
        if number is not None:
            return number
        with self._lock:
            if series not in self._numbers:
                self._series.append(series)
                self._numbers[series] = len(self._series) - 1
            return self._numbers[series]


def what_of(error: BaseException) -> str:
    """Return the text of an error, without its cure."""
    return error.what if isinstance(error, InputError) else str(error)


_all: Final[weakref.WeakSet[Channel]] = weakref.WeakSet()  # all channels of the process, for forks


def _each(method: str) -> None:
    for channel in list(_all):
        getattr(channel, method)()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=lambda: _each("before_fork"),
        after_in_parent=lambda: _each("after_fork_in_parent"),
        after_in_child=lambda: _each("after_fork_in_child"),
    )
