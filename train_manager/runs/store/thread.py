"""Metrics of a run on their way into ``metrics.sqlite``: appended by the run, written by a thread.

    training ──append──> queue ──twice a second──> thread ──one transaction──> metrics.sqlite ──rows──> followers

The training takes no lock. The thread starts with the first item, and is joined as the run ends. While the file cannot
be written, the metrics wait in memory, up to a limit, and a warning reports it.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import sqlite3
import threading
import warnings
import weakref
from collections.abc import Callable, Sequence
from pathlib import Path
from queue import Empty, SimpleQueue
from time import monotonic
from typing import Any, Final, TypeAlias, final

from train_manager.files.atomic import quote_path
from train_manager.metrics.host_numbers import HostNumbers
from train_manager.runs.store.batches import BatchMetrics, Item, Queued
from train_manager.runs.store.database import Database
from train_manager.runs.store.parts import Told
from train_manager.runs.store.rows import Begin, StoredRow
from train_manager.runs.store.schema import RunPart
from train_manager.telling.errors import InputError
from train_manager.telling.source_locations import users_level

EVERY: Final = 0.5  # seconds between two transactions, so that a crash loses less than one second
IDLE: Final = 2.0  # seconds without a metric, outside of a run, until the file is closed and the thread ends
LIMIT: Final = 100_000  # metrics that may wait; further metrics are thrown away
PATIENCE: Final = 10.0  # seconds that the end of a run, and a fork, wait for a transaction

Take: TypeAlias = Callable[[RunPart, Sequence[StoredRow]], object]
"""A follower: it gets rows of a part that were just written, mostly from the thread, and must return at once."""


class Items(SimpleQueue[Queued]):
    """A queue to which the loop appends as to a list."""

    append = SimpleQueue.put


@final
class StoreThread:
    """Write the metrics of a TrainManager into a file, in a thread.

    >>> import tempfile
    >>> from train_manager.runs.store.reader import MetricReader
    >>> path = Path(tempfile.mkdtemp()) / "metrics.sqlite"
    >>> thread = StoreThread(path, "0123456789abcdef")
    >>> thread.append((0.5, 1, 16, 1700000000.0, "train", None))
    >>> thread.close()
    >>> [found.values for found in MetricReader(path).scalars("loss").values()]
    [[0.5]]

    Args:
        path: the file; it is made with the first metric.
        run: the run_id.
        numbers: makes numbers of values, in the thread.

    Attributes:
        queue: what waits for the thread. While a run is open, rows of batches are appended here, with a ``look`` at
            times; the first row of a run goes through ``append``, which starts the thread.
        lost: how many metrics were thrown away.
    """

    def __init__(self, path: Path, run: str, numbers: HostNumbers | None = None) -> None:
        # An earlier thread of this file may still have to begin its run there: the run that began last counts.
        self.database = Database(path, run, numbers or HostNumbers())
        for earlier in list(_all):
            if earlier.database.path == path and earlier.waiting:
                earlier.flush()
        self.queue = Items()  # always the same object: the loop appends to it
        self.lost = 0
        self._metrics = BatchMetrics()
        self._waiting: list[Item] = []  # taken from the queue, and not written yet
        self._followers: tuple[Take, ...] = ()  # replaced as one comes or goes, so that the thread can walk over it
        self._reset()
        _all.add(self)

    def _reset(self) -> None:
        # Also called in a forked child, where the locks may be held and the thread does not exist.
        self._take_from_queue()
        self._waiting = []
        self._writing = threading.Lock()  # held while the file is used
        self._changing = threading.Lock()  # held while the thread starts or ends, or a run opens
        self._is_open = False  # a run is open, so the thread stays though nothing comes
        self._thread: threading.Thread | None = None
        self._end = threading.Event()  # asks the thread to end
        self._problem: str | None = None  # why the file cannot be written at present
        self._warnings: list[str] = []  # for the user; the training issues them, because the thread has no place for it

    @property
    def waiting(self) -> int:
        """How many items wait to be written."""
        return self.queue.qsize() + len(self._waiting)

    # ---- the side of the training --------------------------------------------------------------------------------

    def open(self) -> None:
        """Keep the thread and the file, though nothing comes, until ``rest`` or ``close``."""
        with self._changing:
            self._is_open = True

    def rest(self) -> None:
        """Let the thread close the file and end, if nothing comes for a while."""
        self._is_open = False

    def append(self, queued: Queued) -> None:
        """Leave an item for the thread."""
        self.queue.put(queued)
        self.look()

    def look(self) -> None:
        """Start the thread if none runs, and warn of problems."""
        if self._thread is None:
            self._start()
        if self._warnings:
            self._warn()

    def _start(self) -> None:
        with self._changing:
            if self._thread is None:
                self._end = threading.Event()
                thread = threading.Thread(
                    target=self._work, args=(self._end,), name="train-manager-metrics", daemon=True
                )
                # As the interpreter ends no thread can be started; `close` then writes the queue.
                with contextlib.suppress(RuntimeError):
                    thread.start()
                    self._thread = thread

    def _warn(self) -> None:
        while self._warnings:
            warnings.warn(self._warnings.pop(0), RuntimeWarning, stacklevel=users_level())

    def follow(self, take: Take) -> Callable[[], None]:
        """Hand the rows of each transaction to a function, from the next one on; return what ends that."""
        self._followers = (*self._followers, take)

        def unfollow() -> None:
            self._followers = tuple(one for one in self._followers if one is not take)

        return unfollow

    def flush(self, *, close: bool = False) -> None:
        """Write the waiting metrics now, in the calling thread; with ``close``, close the file too."""
        if self._writing.acquire(timeout=PATIENCE):
            try:
                self._write_all()
                if close:
                    self.database.close_without_log()
            finally:
                self._writing.release()
        else:
            self._meet(f"a transaction takes over {PATIENCE:g} s")
        self._warn()

    def close(self) -> None:
        """Write the waiting metrics, end the thread and close the file; a further metric begins both again."""
        self._is_open = False
        self._end.set()
        thread, self._thread = self._thread, None
        if thread is not None:
            thread.join(PATIENCE)  # it ends after the transaction in which it is
        self.flush(close=True)

    # ---- the side of the thread ----------------------------------------------------------------------------------

    def _work(self, end: threading.Event) -> None:
        wrote_at = monotonic()
        while not end.wait(EVERY):
            if self.queue.qsize() or (self._waiting and self._is_open):
                wrote_at = monotonic()
            with self._writing:
                self._write_all()
            if monotonic() - wrote_at > IDLE and self._leave():
                return

    def _leave(self) -> bool:
        """Close the file and let go of the thread, unless a metric has come meanwhile, or a run has opened."""
        with self._changing:
            if self._is_open or self.queue.qsize():
                return False
            with self._writing:
                self.database.close_without_log()
            self._thread = None
            return True

    def _write_all(self) -> None:
        self._take_from_queue()
        if not self._waiting:
            return
        told: Told | None = {} if self._followers else None
        try:
            has_all = self.database.write(self._waiting, told)
        except (sqlite3.OperationalError, OSError, InputError) as error:
            return self._keep_waiting(what_of(error))
        except Exception as error:  # of SQLite, of a value, or of a device whose tensor is read: the thread stays
            if type(error) is sqlite3.DatabaseError:  # this very class: the file is damaged
                return self._keep_waiting(what_of(error))
            self._drop(error)
            return
        self._waiting, self._problem = [], None
        if not has_all:
            what = "was removed or replaced, so it lacks the metrics of before"
            self._warnings.append(f"{quote_path(self.database.path)} {what}")
        for part, rows in (told or {}).items():
            self._tell(part, rows)

    def _tell(self, part: RunPart, rows: Sequence[StoredRow]) -> None:
        for take in self._followers:
            try:
                take(part, rows)
            except Exception as error:  # of a follower: the file is written all the same
                self._followers = tuple(one for one in self._followers if one is not take)
                self._warnings.append(f"{take!r} cannot take metrics, and gets no more: {error!r}")

    def _take_from_queue(self) -> None:
        with contextlib.suppress(Empty):
            while True:
                self._waiting += self._metrics.of(self.queue.get_nowait())

    def _keep_waiting(self, why: str) -> None:
        beyond = [item for item in self._waiting[LIMIT:] if not isinstance(item, Begin)]
        if beyond:
            is_first, self.lost = not self.lost, self.lost + len(beyond)
            begins = [item for item in self._waiting[LIMIT:] if isinstance(item, Begin)]
            self._waiting = [*self._waiting[:LIMIT], *begins]
            if is_first:
                what = f"{quote_path(self.database.path)} cannot be written: {why}; {LIMIT} metrics wait"
                self._warnings.append(f"{what}, further ones are lost; the run continues")
        self._meet(why)

    def _meet(self, why: str) -> None:
        if self._problem is None:
            self._problem = f"{quote_path(self.database.path)} cannot be written: {why}"
            self._warnings.append(f"{self._problem}; {self.waiting} metrics wait; the run continues")

    def _drop(self, error: Exception) -> None:
        """Throw away the items of a transaction of which one cannot be stored; a part that begins still does."""
        begins: list[Item] = [item for item in self._waiting if isinstance(item, Begin)]
        count, self._waiting = len(self._waiting) - len(begins), begins
        if not self.lost:
            what = f"{quote_path(self.database.path)} lacks {count} metrics, of which one cannot be stored: {error}"
            self._warnings.append(what)
        self.lost += count

    # ---- forks ---------------------------------------------------------------------------------------------------

    def before_fork(self) -> None:
        """Close the file; the next transaction opens it again."""
        # SQLite forbids a connection to cross a fork: closing it in the child would release the locks of the parent.
        self._is_held = self._writing.acquire(timeout=PATIENCE)
        if self._is_held:
            self.database.close()

    def after_fork_in_parent(self) -> None:
        """Let the thread continue."""
        if self._is_held:
            self._writing.release()

    def after_fork_in_child(self) -> None:
        """Forget the items, which the parent writes, the parent's connection and its followers."""
        _left.append(self.database.leave_to_parent())
        self._followers = ()
        self._reset()


def what_of(error: BaseException) -> str:
    """Return the text of an error, without its cure."""
    return error.what if isinstance(error, InputError) else str(error)


_all: Final[weakref.WeakSet[StoreThread]] = weakref.WeakSet()  # all of the process, for forks and its end
_left: Final[list[Any]] = []  # connections of the parent: one that is collected is closed


def _each(method: str) -> None:
    for one in list(_all):
        getattr(one, method)()


@atexit.register
def close_all() -> None:
    """Write what waits as the interpreter ends."""
    for one in list(_all):
        one.close()
        if one.waiting:
            what = f"{one._problem}; {one.waiting + one.lost} metrics are lost"
            warnings.warn(what, RuntimeWarning, stacklevel=users_level())


if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=lambda: _each("before_fork"),
        after_in_parent=lambda: _each("after_fork_in_parent"),
        after_in_child=lambda: _each("after_fork_in_child"),
    )
