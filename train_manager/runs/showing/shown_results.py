"""The results of a run: per-class results, pictures such as hard examples, and the texts that hooks have written."""

from __future__ import annotations

import base64
import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

from train_manager.runs.record.metric_blobs import StoredArray
from train_manager.runs.record.metric_schema import Series
from train_manager.runs.showing.stored_metrics import StoredMetrics

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


class Picture(NamedTuple):
    """A picture, with the text of the same name and step."""

    name: str
    step: int
    address: str  # a data: URL that holds the whole file
    text: str


def shown_classes(number: int, metrics: StoredMetrics, of: str = "") -> tuple[list[Classes], list[dict[str, Any]]]:
    """Return the results and the heat map of the last confusion matrix of each name.

    Args:
        number: of the run.
        metrics: of the run.
        of: an end of their names, such as " of run-1".
    """
    found = [(_name(series) + of, rows[-1]) for series, rows in metrics.arrays.items() if _is_square(rows[-1].shape)]
    classes = [Classes(name, matrix.step, class_results(matrix)) for name, matrix in found]
    return classes, [_map(number, name, matrix) for name, matrix in found]


def _is_square(shape: Sequence[int]) -> bool:
    return len(shape) == 2 and shape[0] == shape[1]


def class_results(matrix: StoredArray) -> list[ClassResult]:
    """Return the result of each class, the worst first.

    Args:
        matrix: how many examples of each class, by rows, were taken for each class, by columns.
    """
    size, names, rows = matrix.shape[0], _classes(matrix), _rows(matrix)
    found = []
    for n, row in enumerate(rows):
        of, taken = sum(row), sum(other[n] for other in rows)
        # The largest count beside the diagonal; -other takes the first class of equal counts.
        count, most = max((count, -other) for other, count in enumerate(row) if other != n) if size > 1 else (0, 0)
        mistake = f"{names[-most]} ({count:.0f})" if count else ""
        found.append(
            ClassResult(names[n], round(of), row[n] / of if of else None, row[n] / taken if taken else None, mistake)
        )
    return sorted(found, key=lambda one: 2.0 if one.recall is None else one.recall)


def _map(run: int, name: str, matrix: StoredArray) -> dict[str, Any]:
    """Return a matrix as the page gets it: the shares of each row."""
    size = matrix.shape[0]
    values = [[round(count / (sum(row) or 1), 4) for count in row] for row in _rows(matrix)]
    names = _classes(matrix)
    place = {"section": "classes", "run": run, "name": name}
    return {**place, "labels": names, "columns": names, "x": [*range(size)], "values": values}


def pictures(train_dir: Path, metrics: StoredMetrics) -> Iterator[Picture]:
    """Yield the last picture of each name, as long as they fit into LARGEST bytes."""
    room = LARGEST
    for series, files in metrics.files.items():
        if not files:
            continue
        step, path, *_ = files[-1]
        # The record may come from a stranger: the page must not embed files of other folders.
        inside = (train_dir / path).resolve()
        if not inside.is_relative_to(train_dir.resolve()) or not inside.is_file() or inside.stat().st_size > room:
            continue
        content = inside.read_bytes()
        if content.startswith(PNG):
            text = next((text for at, text in metrics.texts.get(series, [])[-1:] if at == step), "")[:LONGEST]
            room -= len(content)
            yield Picture(_name(series), step, f"data:image/png;base64,{base64.b64encode(content).decode()}", text)


def texts(metrics: StoredMetrics) -> list[tuple[str, int, str]]:
    """Return name, step and text of the last text of each name."""
    return [(_name(series), step, text[:LONGEST]) for series, of in metrics.texts.items() for step, text in of[-1:]]


def _rows(matrix: StoredArray) -> list[list[float]]:
    size, values = matrix.shape[0], [value if math.isfinite(value) else 0.0 for value in matrix.values]
    return [values[start : start + size] for start in range(0, size * size, size)]


def _classes(matrix: StoredArray) -> Sequence[str]:
    return matrix.labels or [str(number) for number in range(matrix.shape[0])]


def _name(series: Series) -> str:
    return f"{series.phase}/{series.name}" if series.phase else series.name
