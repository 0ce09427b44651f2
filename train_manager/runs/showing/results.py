"""The results of a run: per-class results, pictures such as hard examples, and the texts that hooks have written."""

from __future__ import annotations

import base64
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from train_manager.runs.comparing.measured import name_of
from train_manager.runs.store.reader import MetricReader
from train_manager.runs.store.rows import StoredArray
from train_manager.runs.store.schema import Series

PNG: Final = b"\x89PNG\r\n\x1a\n"
LARGEST: Final = 400_000  # bytes of all pictures of a page
LONGEST: Final = 20_000  # characters of a text


class ClassResult(NamedTuple):
    """The quality of the predictions for a class."""

    name: str
    examples: int  # number of examples of the class
    recall: float | None  # the share of them that was predicted as this class; None if there are no examples
    precision: float | None  # the share of these predictions that is right; None if the class was never predicted
    mistake: str  # the most frequent wrong prediction for its examples, with its count; empty without mistakes


class Classes(NamedTuple):
    """The results of a confusion matrix, and its step."""

    name: str
    step: int
    results: list[ClassResult]


class ShownPicture(NamedTuple):
    """A picture, with the text of the same name and step."""

    name: str
    step: int
    address: str  # a data: URL that holds the whole file
    text: str


def shown_classes(
    number: int, arrays: Mapping[Series, Sequence[StoredArray]], of: str = ""
) -> tuple[list[Classes], list[dict[str, Any]]]:
    """Return the results and the heat map of the last confusion matrix of each name.

    Args:
        number: of the run.
        arrays: of the run.
        of: an end of their names, such as " of run-1".
    """
    found = [(name_of(series) + of, rows[-1]) for series, rows in arrays.items() if _is_square(rows[-1].shape)]
    classes = [Classes(name, matrix.step, class_results(matrix)) for name, matrix in found]
    return classes, [_map(number, name, matrix) for name, matrix in found]


def _is_square(shape: Sequence[int]) -> bool:
    return len(shape) == 2 and shape[0] == shape[1]


def class_results(matrix: StoredArray) -> list[ClassResult]:
    """Return the result of each class, the worst first.

    Args:
        matrix: how many examples of each class, by rows, were taken for each class, by columns.
    """
    names, counts = _classes(matrix), _counts(matrix)
    found = []
    for n, (name, row) in enumerate(zip(names, counts, strict=True)):
        of, taken = row.sum(), counts[:, n].sum()
        others = np.where(np.arange(len(row)) == n, 0, row)
        most = int(others.argmax())
        mistake = f"{names[most]} ({others[most]:.0f})" if others[most] else ""
        right = float(row[n])
        found.append(
            ClassResult(name, round(of), right / of if of else None, right / taken if taken else None, mistake)
        )
    return sorted(found, key=lambda one: 2.0 if one.recall is None else one.recall)


def _map(run: int, name: str, matrix: StoredArray) -> dict[str, Any]:
    """Return a matrix as the page gets it: the shares of each row."""
    counts, names = _counts(matrix), _classes(matrix)
    shares = counts / np.where(counts.any(axis=1, keepdims=True), counts.sum(axis=1, keepdims=True), 1)
    place = {"section": "classes", "run": run, "name": name}
    return {**place, "labels": names, "columns": names, "x": [*range(len(names))], "values": shares.round(4).tolist()}


def pictures(train_dir: Path, reader: MetricReader, run: str | None) -> Iterator[ShownPicture]:
    """Yield the last picture of each name, as long as they fit into LARGEST bytes."""
    room, texts = LARGEST, reader.texts(run=run)
    for series, files in reader.files(run=run).items():
        step, path, *_ = files[-1]
        # The record may come from a stranger: the page must not embed files of other folders.
        inside = (train_dir / path).resolve()
        if not inside.is_relative_to(train_dir.resolve()) or not inside.is_file() or inside.stat().st_size > room:
            continue
        content = inside.read_bytes()
        if content.startswith(PNG):
            text = next((text for at, text in texts.get(series, [])[-1:] if at == step), "")[:LONGEST]
            room -= len(content)
            address = f"data:image/png;base64,{base64.b64encode(content).decode()}"
            yield ShownPicture(name_of(series), step, address, text)


def last_texts(reader: MetricReader, run: str | None) -> list[tuple[str, int, str]]:
    """Return name, step and text of the last text of each name."""
    found = reader.texts(run=run)
    return [(name_of(series), step, text[:LONGEST]) for series, of in found.items() for step, text in of[-1:]]


def _counts(matrix: StoredArray) -> NDArray[np.float64]:
    counts = np.array(matrix.values, float).reshape(matrix.shape)
    return np.where(np.isfinite(counts), counts, 0.0)


def _classes(matrix: StoredArray) -> Sequence[str]:
    return matrix.labels or [str(number) for number in range(matrix.shape[0])]
