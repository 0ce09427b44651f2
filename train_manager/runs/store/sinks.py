"""Extensions that send what ``MetricStore`` stores to another tool.

While a run is open the store hands its rows on. The file has them all: ``train-manager export`` sends them again.
"""

from __future__ import annotations

import importlib
import shlex
from abc import abstractmethod
from collections.abc import Iterator, Mapping
from inspect import signature
from itertools import islice
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Final

from train_manager.core.declarations import always, priority
from train_manager.core.extension import Extension
from train_manager.files.atomic import quote_path
from train_manager.files.secrets import redacted
from train_manager.runs.store.delivery import Connection, Delivery, Ending, Sent, Target
from train_manager.runs.store.priorities import AFTER_STORE
from train_manager.runs.store.reader import MetricReader
from train_manager.runs.store.rows import StoredArray, StoredFile, StoredRow
from train_manager.runs.store.schema import RunPart, tag_of
from train_manager.telling.errors import InputError

if TYPE_CHECKING:
    from train_manager.runs.store.writer import MetricWriter  # imports torch, which an export to MLflow does not need

MOST_AT_ONCE: Final = 1000  # rows of an export in one `send`


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


def part_to_export(reader: MetricReader, train_dir: Path, run: str | None) -> RunPart:
    """Return the newest part of the run whose run_id begins so, or of all if None.

    Raises:
        InputError: there is no such run, or there are several.
    """
    parts = reader.runs()
    known = [*dict.fromkeys(part.run for part in parts)]
    named = [one for one in known if one.startswith(run or "")]
    if not parts or (run is not None and len(named) != 1):
        what = f"{quote_path(train_dir)} has {len(named) or 'no'} runs that begin with {run or ''!r}"
        raise InputError(what, name="run", cure=f"its runs are {', '.join(known)}")
    return [part for part in parts if run is None or part.run in named][-1]


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
    def connect(self, sent: Sent) -> Connection:
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
        connection = self.connect(Sent(folder, part, "export", {}))
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
            value = getattr(self, name, None)
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
            target = Target(self.tool, self.connect, self.command(of[0]))
            self._delivery = Delivery(target, of, self.describe(train_manager), writer, before)

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
