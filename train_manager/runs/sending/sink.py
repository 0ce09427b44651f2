"""What takes the figures of ``metrics.sqlite`` for another tool, and what they are called there."""

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
    """Takes figures. After an error a new one is made, of what ``flush`` has returned last."""

    def cut(self, step: int) -> bool:
        """Take back all that is of later steps, if that can be; return whether all that counts must be sent again."""

    def begin(self, segment: NewSegment) -> None:
        """Hear of a segment that rows to come are of; it may be told again, as rows of before are added."""

    def send(self, rows: Sequence[NewRow]) -> None:
        """Take rows that count."""

    def flush(self) -> Mapping[str, Any]:
        """Bring all to where it stays, and return what a new sink needs to go on, as plain values."""

    def close(self) -> None:
        """Let go of all."""


def tag_of(series: Series) -> str:
    """Return what a series is called: where it was measured, and its name; a hook's own figure has its name.

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
    """Yield the numbers of a row by their tags: one, or those of a vector by their labels; of others none."""
    tag, value = tag_of(row.series), row.value
    if isinstance(value, StoredArray):
        if len(value.shape) == 1:
            labels = value.labels or map(str, range(len(value.values)))
            yield from ((f"{tag}/{label}", number) for label, number in zip(labels, value.values, strict=True))
    elif isinstance(value, float | int):
        yield tag, value


def histogram_of(row: NewRow) -> tuple[list[float], list[int]] | None:
    """Return the edges and the counts of a histogram; None of another row."""
    return row.value if type(row.value) is tuple and len(row.value) == 2 else None


def file_of(row: NewRow, train_dir: Path) -> Path | None:
    """Return the file that a row tells of; None of another row, if it is gone, and if it is not in the train_dir.

    What is sent goes to other machines, and the path is one of a record, which may be a stranger's.
    """
    path = train_dir / row.value[0] if type(row.value) is tuple and len(row.value) == 3 else None
    return path if path is not None and path.is_file() and path.resolve().is_relative_to(train_dir.resolve()) else None
