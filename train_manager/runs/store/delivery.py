"""The rows of a run on their way to another tool, such as TensorBoard.

    thread of the store ──take──> queue of a Delivery ──its own thread──> Connection

So no step waits for a tool, and a tool that fails or hangs stops neither the training nor the store.
"""

from __future__ import annotations

import atexit
import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from queue import SimpleQueue
from threading import Thread
from typing import TYPE_CHECKING, Final, Literal, NamedTuple, Protocol, TypeAlias, final

from train_manager.files.atomic import quote_path
from train_manager.runs.store.rows import StoredRow
from train_manager.runs.store.schema import RunPart
from train_manager.telling.source_locations import users_level

if TYPE_CHECKING:
    from train_manager.runs.store.writer import MetricWriter

MOST_WAITING: Final = 100_000  # rows in the queue; later ones are left out
PATIENCE: Final = 10.0  # seconds that the end of a run waits for a tool

Mode: TypeAlias = Literal["begin", "continue", "export"]
"""Why a connection is made: a part of a run begins; an earlier run of the same TrainManager has begun it; or all rows
that count for a run are sent, whether or not they were sent before.
"""


class Sent(NamedTuple):
    """What a connection is made for.

    Attributes:
        train_dir: the folder of the run.
        part: the part of the run that the rows are of; of an export, the newest part.
        parameters: what ``Sink.describe`` has returned; empty of an export.
    """

    train_dir: Path
    part: RunPart
    mode: Mode
    parameters: Mapping[str, str]


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


class Target(NamedTuple):
    """Where the rows of a TrainManager go.

    Attributes:
        tool: its name in ``train-manager export --to``.
        connect: makes a connection.
        command: sends all rows of the newest run once more.
    """

    tool: str
    connect: Callable[[Sent], Connection]
    command: str


@final
class Delivery:
    """Takes rows from the store, and sends them in a thread of its own, until the run ends.

    Args:
        target: where they go.
        of: the train_dir and the run_id.
        parameters: of the TrainManager, for the tool.
        writer: of the store.
        before: the delivery of the run before of the same TrainManager, if any; its thread may still be sending.

    Attributes:
        has_ended: whether ``end`` was called.
    """

    def __init__(
        self,
        target: Target,
        of: tuple[Path, str],
        parameters: Mapping[str, str],
        writer: MetricWriter,
        before: Delivery | None,
    ) -> None:
        self.of, self._target, self._parameters = of, target, parameters
        self._queue = SimpleQueue[tuple[RunPart, Sequence[StoredRow]] | Ending]()
        self._taken = self._left_out = 0  # rows; changed by the thread of the store
        self._sent = 0  # rows; changed by the thread of this delivery
        self._part: int | None = None  # the last part that a connection was made for
        self._has_failed = self.has_ended = False
        self._untold: list[str] = []  # what could not be warned of in a thread
        # A daemon, so that a tool that hangs does not hold the process.
        self._thread = Thread(target=self._send_all, args=(before,), name=f"train-manager-{target.tool}", daemon=True)
        self._thread.start()
        atexit.register(self._end_at_exit)
        self._unfollow = writer.follow(self.take)

    def take(self, part: RunPart, rows: Sequence[StoredRow]) -> None:
        """Take rows of a part that are in the file; the thread of the store calls it."""
        self._taken += len(rows)
        if self._has_failed:
            return
        if self._taken - self._left_out - self._sent <= MOST_WAITING:
            self._queue.put((part, rows))
            return
        if not self._left_out:
            slow = f"{self._target.tool} is slower than the training"
            self._warn(f"{slow}: {MOST_WAITING:,} metrics wait for it, and more are left out")
        self._left_out += len(rows)

    def end(self, ending: Ending) -> None:
        """Send the rest, for ten seconds at most, and warn if rows are left."""
        self.has_ended = True
        atexit.unregister(self._end_at_exit)
        self._unfollow()
        self._queue.put(ending)
        self._thread.join(PATIENCE)
        problems = [*self._untold, self._unsent()]
        if any(problems):
            warnings.warn("; ".join(filter(None, problems)), RuntimeWarning, stacklevel=users_level())

    def _end_at_exit(self) -> None:
        # Imported here, because it imports torch, which an export to MLflow does not need.
        from train_manager.runs.store.thread import close_all

        # Python calls first what was registered last, so the store has not written its last rows yet.
        close_all()
        self.end(Ending())

    def _unsent(self) -> str:
        """Return what the tool lacks and the command that sends it, in words; nothing if it was sent all."""
        tool, _, command = self._target
        folder = quote_path(self.of[0])
        if count := self._taken - self._sent:
            return f"{tool} lacks {count:,} metrics of {folder}: {command}"
        late = f"{tool} has not ended within {PATIENCE:g} seconds; if it lacks metrics of {folder}: {command}"
        return late if self._thread.is_alive() else ""

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
            self._warn(f"{self._target.tool} gets no metrics: {type(error).__name__}: {error}; the run continues")
            with suppress(Exception):
                if connection is not None:
                    connection.close(None)

    def _connect(self, part: RunPart, before: Connection | None) -> Connection:
        if before is not None:
            before.close(None)
        mode: Mode = "continue" if part.id == self._part else "begin"
        made = self._target.connect(Sent(self.of[0], part, mode, self._parameters))
        self._part = part.id
        return made

    def _warn(self, text: str) -> None:
        try:
            warnings.warn(text, RuntimeWarning, stacklevel=2)
        except RuntimeWarning:  # a filter makes errors of warnings: `end` warns in the thread of the training
            self._untold.append(text)
