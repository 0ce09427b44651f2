"""The protocol of sinks, which take metrics for another tool, and the names of metrics there."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Protocol

from train_manager.runs.record.metric_blobs import StoredArray
from train_manager.runs.record.metric_news import NewRow, NewSegment
from train_manager.runs.record.metric_schema import BATCHES, EPOCHS, EVALUATIONS, Series

USUAL_DATA: Final = ("train", "")
"""What the data of batches is called if it has no name of its own."""


class Sink(Protocol):
    """Takes metrics; after an error a new sink is made from the last value of ``flush``."""

    def cut(self, step: int) -> bool:
        """Take back the rows of later steps if possible; return whether all rows that count must be sent again."""

    def begin(self, segment: NewSegment) -> None:
        """Prepare for the rows of a segment; the feed may announce a segment more than once."""

    def send(self, rows: Sequence[NewRow]) -> None:
        """Take rows that count."""

    def flush(self) -> Mapping[str, Any]:
        """Make the rows durable, and return what a new sink needs to continue, as plain values."""

    def close(self) -> None:
        """Release files and connections."""


def tag_of(series: Series) -> str:
    """Return the tag of a series: where it was measured, and its name; a hook's own metric has only its name.

    >>> tag_of(Series("loss", "train_step_batch", "train")), tag_of(Series("accuracy", "eval", "valid"))
    ('batch/loss', 'eval/valid/accuracy')
    >>> tag_of(Series("loss", "train_step_epoch", phase="head")), tag_of(Series("grad_norm"))
    ('head/epoch/loss', 'grad_norm')
    """
    name, stage, datasource, phase = series
    if stage == BATCHES:
        parts = ["batch", name, *([] if datasource in USUAL_DATA else [datasource])]
    elif stage == EPOCHS:
        parts = ["epoch", name]
    else:
        parts = ["eval", datasource, name] if stage == EVALUATIONS else [name]
    return "/".join([phase, *parts] if phase else parts)


def scalars_of(row: NewRow) -> Iterator[tuple[str, float]]:
    """Yield the tag and the value of a number, or of each number of a vector; none for another row."""
    tag, value = tag_of(row.series), row.value
    if isinstance(value, StoredArray):
        if len(value.shape) == 1:
            labels = value.labels or map(str, range(len(value.values)))
            yield from ((f"{tag}/{label}", number) for label, number in zip(labels, value.values, strict=True))
    elif isinstance(value, float | int):
        yield tag, value


def histogram_of(row: NewRow) -> tuple[list[float], list[int]] | None:
    """Return the edges and the counts of a histogram; None of another row."""
    # A row holds a histogram as (edges, counts), and a file as a tuple of three; a StoredArray is another tuple class.
    return row.value if type(row.value) is tuple and len(row.value) == 2 else None


def file_of(row: NewRow, train_dir: Path) -> Path | None:
    """Return the file that a row names; None for another row, and if the file is gone or outside of the train_dir."""
    # The train_dir may come from a stranger, whose record could name any file of this machine to be sent away.
    path = train_dir / row.value[0] if type(row.value) is tuple and len(row.value) == 3 else None
    return path if path is not None and path.is_file() and path.resolve().is_relative_to(train_dir.resolve()) else None
