"""Every metric of the training in the event files of TensorBoard, handed on by ``MetricStore``."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from itertools import groupby, pairwise
from pathlib import Path
from typing import Any, ClassVar, Final, final

from train_manager.rebuilding.recorded import recorded
from train_manager.runs.store.delivery import Connection, Ending, Sent
from train_manager.runs.store.reader import MetricReader
from train_manager.runs.store.rows import Histogram, StoredRow
from train_manager.runs.store.schema import tag_of
from train_manager.runs.store.sinks import Sink, file_of, tagged_numbers

SIGNATURE: Final = b"\x89PNG\r\n\x1a\n"


@recorded
class TensorBoard(Sink):
    """Write all metrics of ``MetricStore`` for TensorBoard, in a thread that no step waits for.

    >>> from train_manager.extensions import MetricStore
    >>> extensions = [MetricStore(), TensorBoard()]

    Then ``tensorboard --logdir runs`` shows the runs below ``runs``. Metrics are written within a second, and as the
    run ends for ten seconds at most; ``train-manager export RUN --to tensorboard`` writes all of them again.
    After a resume TensorBoard forgets the later steps of the run before (``purge_step``). The extension needs the
    package tensorboard: ``pip install "train-manager[tensorboard]"``.

    *Runs at:* the start and the end of ``run``.

    *Asks for:* ``writer`` of ``MetricStore``, without which it is refused; ``train_dir``, ``step_num`` and
    ``start_step``.

    *Leaves behind:* event files in ``folder``.

    Args:
        folder: where to write; None is ``tensorboard`` in the ``train_dir``.

    Raises:
        InputError: as the run begins: there is no ``MetricStore``.
        ImportError: as the run begins: tensorboard is not installed.
    """

    tool: ClassVar[str] = "tensorboard"
    package: ClassVar[str] = "tensorboard"

    def __init__(self, folder: Path | str | None = None) -> None:
        self.folder = None if folder is None else Path(folder).absolute()

    def connect(self, sent: Sent) -> Connection:
        """Open an event file; TensorBoard forgets what the other files of the folder have of the steps that come."""
        purge = purge_step_of(sent)
        events = EventFile(self.folder or sent.train_dir / "tensorboard", sent.train_dir, purge)
        if purge and sent.mode == "begin":
            # TensorBoard has also forgotten what hooks had written before for later steps of their own.
            rows, began = MetricReader(sent.train_dir).rows(sent.part.run), sent.part.began
            events.send([row for row in rows if row.step >= purge and row.time < began])
        return events


def purge_step_of(sent: Sent) -> int | None:
    """Return the step from which on TensorBoard forgets what earlier files of the folder have; None for nothing.

    >>> from train_manager.runs.store.schema import RunPart
    >>> resumed = Sent(Path(), RunPart(2, "a", 0.0, resumes=1, step=6), "begin", {})
    >>> purge_step_of(resumed), purge_step_of(resumed._replace(mode="continue"))
    (7, None)
    >>> purge_step_of(resumed._replace(mode="export"))
    0
    """
    if sent.mode == "continue":
        return None
    if sent.mode == "export" or sent.part.resumes is None:
        return 0
    return None if sent.part.step is None else sent.part.step + 1


@final
class EventFile:
    """One event file.

    Args:
        folder: where it lies.
        train_dir: the folder of the run, in which its pictures are.
        purge_step: TensorBoard drops this step and later ones of the files before; None: none.
    """

    def __init__(self, folder: Path, train_dir: Path, purge_step: int | None) -> None:
        # Imported here, since both need the package tensorboard, and torch takes a second.
        from torch.utils.tensorboard import SummaryWriter

        self._train_dir = train_dir
        wait_for_a_newer_name(folder)
        # By default the queue has 10 events, each of which would be waited for.
        self._writer: Any = SummaryWriter(str(folder), purge_step=purge_step, max_queue=1000)

    def send(self, rows: Sequence[StoredRow]) -> None:
        """Write rows, with one event for neighbouring rows of one step and time."""
        from tensorboard.compat.proto.summary_pb2 import Summary

        for (step, at), several in groupby(rows, lambda row: (row.step, row.time)):
            if values := [value for row in several for value in summary_values(row, self._train_dir)]:
                self._writer.file_writer.add_summary(Summary(value=values), step, at)
        self._writer.flush()

    def close(self, ending: Ending | None) -> None:
        """Close the file."""
        self._writer.close()


def wait_for_a_newer_name(folder: Path) -> None:
    """Wait until no event file of a folder is of this second.

    TensorBoard reads the files of a folder in the order of their names: the second, then the host, the process and a
    count without leading zeros. Two files of one second could be read in the wrong order, and the purge of the newer
    one would then drop nothing, or its own numbers.
    """
    while any(folder.glob(f"events.out.tfevents.{int(time.time()):010d}.*")):
        time.sleep(0.05)


def summary_values(row: StoredRow, train_dir: Path) -> Iterator[Any]:
    """Yield a row as values of TensorBoard; none for a matrix, or for a file that is not a picture."""
    from tensorboard.compat.proto.summary_pb2 import Summary
    from tensorboard.plugins.text.summary_v2 import text_pb
    from torch.utils.tensorboard.summary import histogram_raw

    for tag, number in tagged_numbers(row):
        yield Summary.Value(tag=tag, simple_value=number)
    tag = tag_of(row.series)
    if isinstance(row.value, str):
        yield from text_pb(tag, row.value).value
    elif isinstance(row.value, Histogram):
        yield from histogram_raw(tag, **sums_of(row.value)).value
    elif (path := file_of(row, train_dir)) and (png := path.read_bytes()).startswith(SIGNATURE):
        # The PNG header has the width at byte 16 and the height at byte 20.
        width, height = (int.from_bytes(png[at : at + 4], "big") for at in (16, 20))
        image = Summary.Image(width=width, height=height, colorspace=3, encoded_image_string=png)
        yield Summary.Value(tag=tag, image=image)


def sums_of(histogram: Histogram) -> dict[str, Any]:
    """Return a histogram with the sums that it would have if all numbers were in the middles of the bins."""
    edges, counts = histogram
    middles = [low / 2 + high / 2 for low, high in pairwise(edges)]
    total, squares = (sum(count * mid**power for count, mid in zip(counts, middles, strict=True)) for power in (1, 2))
    ends = {"min": edges[0], "max": edges[-1], "num": sum(counts), "sum": total, "sum_squares": squares}
    return {**ends, "bucket_limits": edges[1:], "bucket_counts": counts}
