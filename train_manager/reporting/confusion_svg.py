"""Confusion matrices as one SVG file, each with the recall and the precision of each class."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final
from xml.sax.saxutils import escape

from train_manager.reporting.embedded import colour_image
from train_manager.reporting.svg_figure import NARROW, svg_file
from train_manager.reporting.values import short_name

RIGHT, BELOW = 320, 24  # pixels beside a matrix, for recall and precision, and below it
LETTER: Final = 8  # pixels of the width of a letter
MOST_LETTERS: Final = 20  # letters of the name of a class
MOST_UPRIGHT: Final = 3  # letters up to which names of columns are not turned
MOST_TEXTS: Final = 20  # classes whose counts are written into their cells
SIZE: Final = 620  # pixels of a matrix at most
BRIGHT: Final = 0.6  # share of a row from which the cell is so bright that its text is dark


def confusion_svg(matrices: Mapping[str, Sequence[Sequence[int]]], names: Sequence[str]) -> str:
    """Return the matrices of evaluation sets below each other; ``names`` has the names of the classes, or none."""
    if not matrices:
        return svg_file(['<text x="24" y="32">there was no evaluation so far</text>'], 52, NARROW)
    parts: list[str] = []
    top, width = 0.0, float(NARROW)
    for name, matrix in matrices.items():
        classes = [str(number) for number in range(len(matrix))] if len(names) != len(matrix) else names
        cell = max(2.0, min(44.0, SIZE / len(matrix)))
        classes = [short_name(each, MOST_LETTERS) for each in classes]
        left = 24 + LETTER * max(map(len, classes))
        parts += _matrix(name, matrix, classes, left, top, cell)
        top, width = top + _above(classes) + cell * len(matrix) + BELOW, max(width, left + cell * len(matrix) + RIGHT)
    return svg_file(parts, top, width)


def _above(classes: Sequence[str]) -> int:
    """Return the pixels of the title, and of the names of columns, which are turned if they are long."""
    return 84 if max(map(len, classes)) > MOST_UPRIGHT else 54


def _matrix(
    name: str, matrix: Sequence[Sequence[int]], classes: Sequence[str], left: float, top: float, cell: float
) -> Iterator[str]:
    size, above = cell * len(matrix), top + _above(classes)
    # Colours show the share of a true class, so that rare classes are seen as well as frequent ones.
    shares = [[count / max(1, sum(row)) for count in row] for row in matrix]
    colours = [[1 + round(254 * share) if any(of_row) else 0 for share in of_row] for of_row in shares]
    yield f'<text x="{left}" y="{top + 20:.1f}">{escape(name)}: true class by row, predicted class by column</text>'
    yield colour_image(colours, left, above, size, size)
    # Names that would overlap are left out: a line of text needs 14 pixels.
    every = max(1, round(14 / cell))
    for number in range(0, len(matrix), every):
        at = (number + 0.5) * cell
        label = escape(classes[number])
        yield f'<text x="{left - 8}" y="{above + at + 4:.1f}" text-anchor="end">{label}</text>'
        angle, anchor = (90, "start") if len(classes[number]) > MOST_UPRIGHT else (0, "middle")
        turned = f"translate({left + at + 4:.1f} {above - 6:.1f}) rotate(-{angle})"
        yield f'<text transform="{turned}" text-anchor="{anchor}">{escape(short_name(classes[number], 8))}</text>'
        total, said, right = sum(matrix[number]), sum(row[number] for row in matrix), matrix[number][number]
        found = f"{right / total:.1%} of {total:,} found" if total else "none there"
        held = f"{right / said:.1%} of {said:,} right" if said else "never said"
        yield f'<text x="{left + size + 12:.1f}" y="{above + at + 4:.1f}">{found}, {held}</text>'
    if len(matrix) <= MOST_TEXTS:
        places = [(row, column) for row, counts in enumerate(matrix) for column, count in enumerate(counts) if count]
        for row, column in places:
            x, y = left + (column + 0.5) * cell, above + (row + 0.5) * cell + 4
            look = f"fill: {'#111' if shares[row][column] > BRIGHT else '#fff'}; font-size: {min(13, cell / 2.6):.0f}px"
            yield f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="middle" style="{look}">{matrix[row][column]}</text>'
