"""Every figure of the training in the event files of TensorBoard, written from ``metrics.sqlite``.

torch's writer is not used: one event has the figures of a whole step, for a tenth of the time.
"""

from __future__ import annotations

import hashlib
import os
import socket
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from time import time
from typing import Any, BinaryIO, ClassVar, final

from train_manager.rebuilding.recorded import recorded
from train_manager.runs.record.following import FollowsStore
from train_manager.runs.record.metric_news import NewRow, NewSegment
from train_manager.runs.record.sink import file_of, histogram_of, scalars_of, tag_of

SIGNATURE = b"\x89PNG\r\n\x1a\n"


@recorded
class TensorBoard(FollowsStore):
    """Write all that ``MetricStore`` stores for TensorBoard, in a thread that no step waits for.

    >>> from train_manager.extensions import MetricStore
    >>> extensions = [MetricStore(), TensorBoard()]

    Then ``tensorboard --logdir runs`` shows the runs below ``runs``. It is written within seconds, and as the run ends
    for ten seconds at most; what was left is written by ``train-manager export RUN --to tensorboard``, or by a resume.
    After a resume TensorBoard forgets the later steps of before (``purge_step``). It needs the package tensorboard:
    ``pip install "train-manager[tensorboard]"``.

    *Runs at:* the start and the end of ``run``.

    *Asks for:* ``writer`` of ``MetricStore``, without which it is refused; ``train_dir``, ``step_num`` and
    ``start_step``.

    *Leaves behind:* event files in ``folder``; ``sinks.json`` in ``train_dir``.

    Args:
        folder: where to write; None is ``tensorboard`` in the ``train_dir``.

    Raises:
        InputError: as the run begins: there is no ``MetricStore``.
        ImportError: as the run begins: tensorboard is not installed.
    """

    sink: ClassVar[str] = "tensorboard"
    package: ClassVar[str] = "tensorboard"

    def __init__(self, folder: Path | str | None = None) -> None:
        self.folder = None if folder is None else Path(folder).absolute()

    def make_sink(self, train_dir: Path, state: Mapping[str, Any]) -> EventFile:
        """Return what writes the event files."""
        folder = self.folder or state.get("folder", "tensorboard")  # as the training was told, if it is exported
        return EventFile(train_dir / folder, train_dir, state)


@final
class EventFile:
    """A sink that writes an event file; what an earlier one had written that was not noted is cut off.

    Args:
        folder: where event files lie.
        train_dir: to which paths of pictures are relative.
        state: of the sink before: its file, and how many bytes of it were noted.
    """

    def __init__(self, folder: Path, train_dir: Path, state: Mapping[str, Any]) -> None:
        from tensorboard.compat.proto import event_pb2
        from tensorboard.summary.writer.record_writer import RecordWriter

        mine = f"train-manager-{hashlib.sha256(os.fsencode(train_dir)).hexdigest()[:8]}"
        folder.mkdir(parents=True, exist_ok=True)
        if state:
            cut_back(folder.glob(f"events.out.tfevents.*.{mine}"), state["file"], state["bytes"])
        self._path = folder / f"events.out.tfevents.{time():017.6f}.{socket.gethostname()}.{os.getpid()}.{mine}"
        self._file: BinaryIO = self._path.open("xb")
        self._records, self._event, self._train_dir = RecordWriter(self._file), event_pb2.Event, train_dir
        self._has_own_steps: bool = state.get("has_own_steps", False)
        self._noted = 0  # bytes
        self._write(file_version="brain.Event:2")

    def begin(self, segment: NewSegment, is_new: bool) -> bool:
        """Let TensorBoard forget the steps that a segment supersedes; all, if a hook has given steps of its own."""
        from tensorboard.compat.proto.event_pb2 import SessionLog

        if segment.from_step is None or not is_new:
            return False
        purge = 0 if self._has_own_steps else max(segment.from_step + 1, 0)
        self._write(step=purge, session_log=SessionLog(status=SessionLog.START))
        return self._has_own_steps

    def send(self, rows: Sequence[NewRow]) -> None:
        """Write rows, with one event for those next to each other that are of one time."""
        from tensorboard.compat.proto.summary_pb2 import Summary

        values: list[Any] = []
        for number, row in enumerate(rows):
            values += self._values(row, Summary)
            self._has_own_steps = self._has_own_steps or row.step != row.written_in
            is_last = number + 1 == len(rows) or rows[number + 1][4:8:3] != row[4:8:3]  # step and time
            if values and is_last:
                self._write(step=row.step, wall_time=row.time, summary=Summary(value=values))
                values = []

    def flush(self) -> dict[str, Any]:
        """Return what is noted: where the file ends."""
        self._records.flush()
        folder = self._path.parent
        inside = folder.relative_to(self._train_dir) if folder.is_relative_to(self._train_dir) else folder
        self._noted = self._file.tell()
        place = {"folder": str(inside), "file": self._path.name, "bytes": self._noted}
        return {**place, "has_own_steps": self._has_own_steps}

    def close(self) -> None:
        """Close the file; what was written and not noted is cut off."""
        self._file.close()
        cut_back([self._path], self._path.name, self._noted)

    def _write(self, **fields: Any) -> None:
        event = self._event(**{"wall_time": time(), **fields})
        self._records.write(event.SerializeToString())

    def _values(self, row: NewRow, summary: Any) -> Iterator[Any]:
        for tag, number in scalars_of(row):
            yield summary.Value(tag=tag, simple_value=number)
        tag, value = tag_of(row.series), row.value
        if isinstance(value, str):
            yield text_value(tag, value, summary)
        elif found := histogram_of(row):
            yield summary.Value(tag=tag, histo=histogram(*found))
        elif picture := read_png(file_of(row, self._train_dir)):
            width, height = (int.from_bytes(picture[at : at + 4], "big") for at in (16, 20))
            image = summary.Image(width=width, height=height, colorspace=3, encoded_image_string=picture)
            yield summary.Value(tag=tag, image=image)


def cut_back(files: Iterable[Path], last: str, size: int) -> None:
    """Remove what was written after the last note: the end of a file, and those that were begun later."""
    for file in files:
        if file.name > last or (file.name == last and not size):
            file.unlink()
        elif file.name == last and file.stat().st_size > size:
            os.truncate(file, size)


def text_value(tag: str, text: str, summary: Any) -> Any:
    """Return a text as TensorBoard keeps it."""
    from tensorboard.compat.proto.tensor_pb2 import TensorProto
    from tensorboard.compat.proto.tensor_shape_pb2 import TensorShapeProto
    from tensorboard.plugins.text.metadata import create_summary_metadata

    shape = TensorShapeProto(dim=[TensorShapeProto.Dim(size=1)])
    tensor = TensorProto(dtype="DT_STRING", string_val=[text.encode()], tensor_shape=shape)
    return summary.Value(tag=tag, metadata=create_summary_metadata(None, None), tensor=tensor)


def histogram(edges: Sequence[float], counts: Sequence[int]) -> Any:
    """Return a histogram as TensorBoard keeps it; its sums are those of the middles of the bins."""
    from tensorboard.compat.proto.histogram_pb2 import HistogramProto

    middles = [low / 2 + high / 2 for low, high in pairwise(edges)]
    sums = [sum(count * middle**power for count, middle in zip(counts, middles, strict=True)) for power in (1, 2)]
    ends = {"min": edges[0], "max": edges[-1], "num": sum(counts), "sum": sums[0], "sum_squares": sums[1]}
    return HistogramProto(**ends, bucket_limit=edges[1:], bucket=counts)


def read_png(path: Path | None) -> bytes:
    """Return a picture; nothing of a file that is none."""
    found = path.read_bytes() if path is not None and path.suffix == ".png" else b""
    return found if found.startswith(SIGNATURE) else b""
