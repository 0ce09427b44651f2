"""Rows of the store on their way to another tool, such as TensorBoard.

    thread of the store ──take──> queue of a Delivery ──its own thread──> Connection

So no step waits for a tool, and a tool that fails or hangs stops neither the training nor the store. The file has all
rows: ``train-manager export`` sends them again.
"""

from __future__ import annotations

import atexit
import importlib
import shlex
import warnings
from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from inspect import signature
from itertools import islice
from os import PathLike
from pathlib import Path
from queue import SimpleQueue
from threading import Thread
from typing import Any, ClassVar, Final, Literal, NamedTuple, Protocol, TypeAlias, final

from train_manager.core.decorators import always, priority
from train_manager.core.extension import Extension
from train_manager.files.atomic import quote_path
from train_manager.files.secrets import redacted
from train_manager.runs.store.reader import MetricReader
from train_manager.runs.store.rows import StoredArray, StoredFile, StoredRow
from train_manager.runs.store.schema import Part, tag_of
from train_manager.runs.store.thread import close_all
from train_manager.runs.store.writer import AFTER_STORE, MetricWriter
from train_manager.telling.errors import InputError

MOST_WAITING: Final = 100_000  # rows in the queue of a sink; later ones are left out
MOST_AT_ONCE: Final = 1000  # rows of an export in one `send`
PATIENCE: Final = 10.0  # seconds that the end of a run waits for a sink

Mode: TypeAlias = Literal["begin", "continue", "export"]
"""Why a connection is made: a part of a run begins; an earlier run of the same TrainManager has begun it; or all rows
that count for a run are sent, whether or not they were sent before.
"""


class Ending(NamedTuple):
    """How a run has ended: the error that came out of it, and what ``tm.stop`` was given."""

    error: BaseException | None = None
    stop_reason: str | None = None


class Connection(Protocol):
    """Takes rows for a tool; it is made, used and closed in one thread."""

    def send(self, rows: Sequence[StoredRow]) -> None:
        """Send rows."""

    def close(self, ending: Ending | None) -> None:
        """Send what waits, and let go of files and servers; ``ending`` is None if it is not the run that ends."""


class SentRun(NamedTuple):
    """What a connection is made for.

    Attributes:
        train_dir: the folder of the run.
        part: the part of the run that rows are of; of an export, the newest part.
        parameters: what ``Sink.describe`` has returned; empty of an export.
    """

    train_dir: Path
    part: Part
    mode: Mode
    parameters: Mapping[str, str]


def tagged_numbers(row: StoredRow) -> Iterator[tuple[str, float]]:
    """Yield the tag and the value of a number, or of each number of a vector; none of another row."""
    tag, value = tag_of(row.series), row.value
    if isinstance(value, StoredArray):
        if len(value.shape) == 1:
            labels = value.labels or map(str, range(len(value.values)))
            yield from ((f"{tag}/{label}", number) for label, number in zip(labels, value.values, strict=True))
    elif isinstance(value, float | int):
        yield tag, value


def file_of(row: StoredRow, train_dir: Path) -> Path | None:
    """Return the file that a row names; None of another row, and if the file is gone or outside of the train_dir."""
    # The train_dir may come from a stranger, whose record could name any file of this machine to be sent away.
    path = train_dir / row.value.path if isinstance(row.value, StoredFile) else None
    return path if path is not None and path.is_file() and path.resolve().is_relative_to(train_dir.resolve()) else None


def part_to_export(reader: MetricReader, train_dir: Path, run: str | None) -> Part:
    """Return the newest part of the run whose run_id begins so, or of all if None.

    Raises:
        InputError: there is no such run, or there are several.
    """
    parts = reader.runs()
    found = [part for part in parts if run is None or part.run.startswith(run)]
    names, known = ([*dict.fromkeys(part.run for part in some)] for some in (found, parts))
    if not found or (run is not None and len(names) != 1):
        what = f"{quote_path(train_dir)} has {len(names) or 'no'} runs that begin with {run!r}"
        raise InputError(what, name="run", cure=f"its runs are {', '.join(known)}")
    return found[-1]


class Sink(Extension):
    """Sends the rows that ``MetricStore`` stores to another tool, in a thread that no step waits for.

    An error of the tool is warned of once, and the run sends no more. The end of a run waits for ten seconds at most.
    A subclass has ``connect``, and attributes named like the arguments of its constructor, which all have defaults.

    Attributes:
        tool: its name in ``train-manager export --to``; also the extra that it needs.
        package: what the extra installs.
    """

    ranks = 0
    sends_away = True
    tool: ClassVar[str]
    package: ClassVar[str]
    _delivery: Delivery | None = None  # of the present run, or of the last one

    @abstractmethod
    def connect(self, sent: SentRun) -> Connection:
        """Return a connection to the tool; called in the thread that uses it."""

    def describe(self, train_manager: Any) -> Mapping[str, str]:
        """Return what the tool shows of a run beside its rows; asked as the run opens."""
        return {}

    def require_package(self) -> None:
        """Import the package that the tool needs.

        Raises:
            ImportError: it is not installed.
        """
        name = type(self).__name__
        try:
            importlib.import_module(self.package)
        except ImportError as error:
            cure = f'pip install "train-manager[{self.tool}]"'
            raise ImportError(f"{name} needs {self.package} ({error}): {cure}") from error

    def export(self, train_dir: Path | str, run: str | None = None) -> int:
        """Send all rows that count for a run, once more if they were sent before, and return their number.

        Args:
            train_dir: its folder.
            run: what its run_id begins with; None for the newest run of the folder.

        Raises:
            InputError: there are no metrics, no such run or several.
            ImportError: the package of the tool is not installed.
        """
        reader, folder, count = MetricReader(train_dir), Path(train_dir).absolute(), 0
        part = part_to_export(reader, folder, run)
        self.require_package()
        connection = self.connect(SentRun(folder, part, "export", {}))
        try:
            stored = iter(reader.rows(part.run))
            while rows := [*islice(stored, MOST_AT_ONCE)]:
                connection.send(rows)
                count += len(rows)
        finally:
            connection.close(None)
        return count

    def command(self, train_dir: Path) -> str:
        """Return the command that sends all rows of the newest run in a folder to where this sink sends them."""
        command = f"train-manager export {quote_path(train_dir)} --to {self.tool}"
        for name, parameter in signature(type(self)).parameters.items():
            value = getattr(self, name)
            if value != parameter.default and isinstance(value, str | PathLike):
                command += f" --with {shlex.quote(f'{name}={redacted(str(value))}')}"
        return command

    # ---- hooks ---------------------------------------------------------------------------------------------------

    def pre_run(self, train_manager: Any, train_dir: Path, writer: MetricWriter | None = None) -> None:
        name = type(self).__name__
        if writer is None:
            what = f"{name} sends what MetricStore stores, but there is no MetricStore"
            cure = f"add it: extensions=[MetricStore(), {name}()]"
            raise InputError(what, name="writer", asked_by=name, cure=cure)
        self.require_package()
        of = (train_dir.absolute(), train_manager.run_id)
        before = self._delivery if self._delivery is not None and self._delivery.of == of else None
        if before is None or before.has_ended:
            self._delivery = Delivery(self, of, writer, self.describe(train_manager), before)

    @always
    @priority(AFTER_STORE)
    def post_run(
        self, train_manager: Any, step_num: int, start_step: int, exc_value: BaseException | None = None
    ) -> None:
        # A run of a single step may be a call of train_on_batch: waiting for the tool would slow every call down. The
        # delivery continues, and the exit of the process ends it.
        is_long = step_num > start_step + 1 or exc_value is not None
        if is_long and self._delivery is not None and not self._delivery.has_ended:
            self._delivery.end(Ending(exc_value, train_manager.stop_reason))

    def __getstate__(self) -> dict[str, Any]:
        # A thread cannot be pickled: the copy makes a delivery of its own in its `pre_run`.
        return {**vars(self), "_delivery": None}


@final
class Delivery:
    """Takes rows from the store, and sends them in a thread of its own, until the run ends.

    Args:
        sink: makes the connection, as the first rows of a part come.
        of: the train_dir and the run_id.
        writer: of the store.
        parameters: of the TrainManager, for the tool.
        before: the delivery of the run before of the same TrainManager; its thread may still be sending.
    """

    def __init__(
        self,
        sink: Sink,
        of: tuple[Path, str],
        writer: MetricWriter,
        parameters: Mapping[str, str],
        before: Delivery | None,
    ) -> None:
        self.of, self._sink, self._parameters = of, sink, parameters
        self._queue = SimpleQueue[tuple[Part, Sequence[StoredRow]] | Ending]()
        self._taken = self._left_out = 0  # rows; changed by the thread of the store
        self._sent = 0  # rows; changed by the thread of this delivery
        self._part: int | None = None  # the last part that a connection was made for
        self._has_failed = self.has_ended = False
        self._told, self._untold = list[str](), list[str]()  # untold: what could not be warned of in a thread
        # A daemon, so that a tool that hangs does not hold the process.
        self._thread = Thread(target=self._send_all, args=(before,), name=f"train-manager-{sink.tool}", daemon=True)
        self._thread.start()
        atexit.register(self._end_at_exit)
        self._unfollow = writer.follow(self.take)

    def take(self, part: Part, rows: Sequence[StoredRow]) -> None:
        """Take rows of a part that are in the file; the thread of the store calls it."""
        self._taken += len(rows)
        if self._has_failed:
            return
        if self._taken - self._left_out - self._sent > MOST_WAITING:
            self._left_out += len(rows)
            name, most = self._sink.tool, f"{MOST_WAITING:,} metrics wait for it, and more are left out"
            self._warn(f"{name} is slower than the training: {most}")
        else:
            self._queue.put((part, rows))

    def end(self, ending: Ending) -> None:
        """Send the rest, for ten seconds at most, and warn if rows are left."""
        self.has_ended = True
        atexit.unregister(self._end_at_exit)
        self._unfollow()
        self._queue.put(ending)
        self._thread.join(PATIENCE)
        problems = [*self._untold, self._unsent()]
        if any(problems):
            warnings.warn("; ".join(filter(None, problems)), RuntimeWarning, stacklevel=2)

    def _end_at_exit(self) -> None:
        close_all()  # the store hands on what it has not written yet
        self.end(Ending())

    def _unsent(self) -> str:
        """Return what the tool lacks and the command that sends it, in words; nothing if it was sent all."""
        name, (folder, _) = self._sink.tool, self.of
        if count := self._taken - self._sent:
            return f"{name} lacks {count:,} metrics of {quote_path(folder)}: {self._sink.command(folder)}"
        what = f"{name} has not ended within {PATIENCE:g} seconds; if it lacks metrics of {quote_path(folder)}"
        return f"{what}: {self._sink.command(folder)}" if self._thread.is_alive() else ""

    # ---- in the thread -------------------------------------------------------------------------------------------

    def _send_all(self, before: Delivery | None) -> None:
        """Send what is taken until the run has ended."""
        if before is not None:  # it may still send rows of earlier steps
            before._thread.join()
            self._part = before._part
        connection: Connection | None = None
        try:
            while not isinstance(taken := self._queue.get(), Ending):
                part, rows = taken
                if connection is None or part.id != self._part:
                    connection = self._connect(part, connection)
                connection.send(rows)
                self._sent += len(rows)
            if connection is not None:
                connection.close(taken)
        except Exception as error:  # tools raise errors of any class; the run continues
            self._has_failed = True
            self._warn(f"{self._sink.tool} gets no metrics: {type(error).__name__}: {error}; the run continues")
            with suppress(Exception):
                if connection is not None:
                    connection.close(None)

    def _connect(self, part: Part, before: Connection | None) -> Connection:
        if before is not None:
            before.close(None)
        mode: Mode = "continue" if part.id == self._part else "begin"
        made = self._sink.connect(SentRun(self.of[0], part, mode, self._parameters))
        self._part = part.id
        return made

    def _warn(self, text: str) -> None:
        """Warn, once."""
        if text not in self._told:
            self._told.append(text)
            try:
                warnings.warn(text, RuntimeWarning, stacklevel=2)
            except RuntimeWarning:  # a filter makes errors of warnings: `end` warns in the thread of the training
                self._untold.append(text)
