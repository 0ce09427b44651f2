"""Texts, histograms and pictures as TensorBoard keeps them. It is imported where tensorboard is installed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

from tensorboard.compat.proto.histogram_pb2 import HistogramProto
from tensorboard.compat.proto.summary_pb2 import Summary
from tensorboard.plugins.text.summary_v2 import text_pb

from train_manager.runs.record.metric_news import NewRow
from train_manager.runs.sending.sink import file_of, histogram_of, scalars_of, tag_of

SIGNATURE: Final = b"\x89PNG\r\n\x1a\n"


def values_of(row: NewRow, train_dir: Path) -> Iterator[Any]:
    """Yield a row as values of TensorBoard; none for a matrix, or for a file that is not a picture."""
    for tag, number in scalars_of(row):
        yield Summary.Value(tag=tag, simple_value=number)
    tag = tag_of(row.series)
    if isinstance(row.value, str):
        yield from text_pb(tag, row.value).value
    elif found := histogram_of(row):
        yield Summary.Value(tag=tag, histo=histogram(*found))
    elif png := read_png(file_of(row, train_dir)):
        # The PNG header has the width at byte 16 and the height at byte 20.
        width, height = (int.from_bytes(png[at : at + 4], "big") for at in (16, 20))
        image = Summary.Image(width=width, height=height, colorspace=3, encoded_image_string=png)
        yield Summary.Value(tag=tag, image=image)


def histogram(edges: Sequence[float], counts: Sequence[int]) -> Any:
    """Return a histogram, with the sums that it would have if all numbers were in the middles of the bins."""
    middles = [low / 2 + high / 2 for low, high in pairwise(edges)]
    sums = [sum(count * middle**power for count, middle in zip(counts, middles, strict=True)) for power in (1, 2)]
    ends = {"min": edges[0], "max": edges[-1], "num": sum(counts), "sum": sums[0], "sum_squares": sums[1]}
    return HistogramProto(**ends, bucket_limit=edges[1:], bucket=counts)


def read_png(path: Path | None) -> bytes:
    """Return the content of a PNG file; nothing for another file."""
    found = path.read_bytes() if path is not None and path.suffix == ".png" else b""
    return found if found.startswith(SIGNATURE) else b""
