"""A sink that writes the event files of TensorBoard. It is imported where tensorboard is installed.

The writers of torch and of tensorboard are not used: they have a thread of their own, whose errors come late, and do
not tell where the file ends. One event here has the metrics of a whole step, for a tenth of the time.
"""

from __future__ import annotations

import hashlib
import os
import socket
from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from time import time
from typing import Any, final

from tensorboard.compat.proto.event_pb2 import Event, SessionLog
from tensorboard.compat.proto.summary_pb2 import Summary
from tensorboard.summary.writer.record_writer import RecordWriter

from train_manager.runs.record.metric_news import NewRow, NewSegment
from train_manager.runs.sending.event_values import values_of


@final
class EventFile:
    """Writes one event file, after it has removed the events that ``sinks.json`` does not list as sent.

    Args:
        train_dir: the folder of the training.
        folder: where event files lie, from there.
        state: what ``flush`` of the sink before has returned.
    """

    def __init__(self, train_dir: Path, folder: str, state: Mapping[str, Any]) -> None:
        self._train_dir, self._folder = train_dir, folder
        self._has_own_steps: bool = state.get("has_own_steps", False)
        place = train_dir / folder
        place.mkdir(parents=True, exist_ok=True)
        # Only files with this suffix are cut: other programs, or other train_dirs, may write into the same folder.
        ours = f"train-manager-{hashlib.sha256(os.fsencode(train_dir)).hexdigest()[:8]}"
        cut_back(place.glob(f"events.out.tfevents.*.{ours}"), state.get("file", ""), state.get("bytes", 0))
        # TensorBoard reads the files of a folder in the order of their names, so the time has a fixed width.
        name = f"events.out.tfevents.{time():017.6f}.{socket.gethostname()}.{os.getpid()}.{ours}"
        self._file = (place / name).open("xb")
        self._records = RecordWriter(self._file)
        # TensorBoard expects this event at the start of a file.
        self._write(file_version="brain.Event:2")

    def cut(self, step: int) -> bool:
        """Let TensorBoard forget later steps, or all steps if a hook has given steps of its own."""
        # TensorBoard drops the events from this step on as it reads SessionLog.START.
        purge = 0 if self._has_own_steps else max(step + 1, 0)
        self._write(step=purge, session_log=SessionLog(status=SessionLog.START))
        return self._has_own_steps

    def begin(self, segment: NewSegment) -> None:
        """Do nothing: all segments are one run of TensorBoard."""

    def send(self, rows: Sequence[NewRow]) -> None:
        """Write rows, with one event for neighbouring rows of one step and time."""
        for (step, at), several in groupby(rows, lambda row: (row.step, row.time)):
            values = [value for row in several for value in values_of(row, self._train_dir)]
            if values:
                self._write(step=step, wall_time=at, summary=Summary(value=values))
        self._has_own_steps = self._has_own_steps or any(row.step != row.written_in for row in rows)

    def flush(self) -> dict[str, Any]:
        """Return where the file ends."""
        self._records.flush()
        place = {"folder": self._folder, "file": Path(self._file.name).name, "bytes": self._file.tell()}
        return {**place, "has_own_steps": self._has_own_steps}

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def _write(self, **fields: Any) -> None:
        self._records.write(Event(**{"wall_time": time(), **fields}).SerializeToString())


def cut_back(files: Iterable[Path], last: str, size: int) -> None:
    """Remove the events after the last noted one: the end of the last file, and all later files."""
    for file in files:
        # The name begins with the time, so a greater name is a later file.
        if file.name > last:
            file.unlink()
        elif file.name == last and file.stat().st_size > size:
            os.truncate(file, size)
