"""Evaluations as figures of matplotlib: confusion matrices, and examples with what the model said of them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from torch import Tensor

from train_manager.reporting.figures import LINE, ON_ANY_PAPER, draw_image, new_figure, sentence_figure, styled
from train_manager.reporting.panels import NARROW
from train_manager.reporting.pictures import pictures_of
from train_manager.reporting.values import short_name

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

NO_EVALUATION: Final = "there was no evaluation so far"
CELL: Final = 44  # pixels of a cell of a matrix, if there are few
MOST_PIXELS: Final = 620  # of a matrix
LETTER: Final = 9  # pixels of the width of a letter, the widest ones aside
BESIDE_LETTERS: Final = 47  # of the recall and the precision of a class
CLASS_LETTERS: Final = 20  # letters of the name of a class
MOST_UPRIGHT: Final = 3  # letters up to which names of columns are not turned
MOST_TEXTS: Final = 20  # classes whose counts are written into their cells
BRIGHT: Final = 0.6  # share of a row from which the cell is so bright that its text is dark
EXAMPLES_IN_A_ROW: Final = 4
EXAMPLE: Final = 130  # pixels of the longer side of an example
CAPTION: Final = 44  # pixels below an example, for two lines of text
ShownExamples = Mapping[str, Tensor]
"""``inputs``, ``said``, ``true``, ``sure`` and ``place`` of examples."""


def confusion_figure(matrices: Mapping[str, Sequence[Sequence[int]]], names: Sequence[str]) -> Figure:
    """Return the matrices of evaluation sets below each other, with the recall and the precision of each class.

    Args:
        matrices: counts by true and by predicted class, of each set.
        names: of the classes, or none.
    """
    if not matrices:
        return sentence_figure(NO_EVALUATION)
    sizes = [min(MOST_PIXELS, CELL * len(matrix)) for matrix in matrices.values()]
    letters = BESIDE_LETTERS + min(CLASS_LETTERS, max(map(len, names), default=3))
    with styled(ON_ANY_PAPER):
        # 7 lines are for the title and the names of columns.
        figure = new_figure(max(NARROW, max(sizes) + LETTER * letters), sum(sizes) + 7 * LINE * len(sizes))
        panels = figure.subplots(len(sizes), 1, squeeze=False, height_ratios=sizes)[:, 0]
        for axes, size, (name, matrix) in zip(panels, sizes, matrices.items(), strict=True):
            axes.set_title(f"{name}: true class by row, predicted class by column")
            axes.set_anchor("W")
            classes = names if len(names) == len(matrix) else [str(number) for number in range(len(matrix))]
            _draw_matrix(axes, matrix, classes, size / len(matrix))
    return figure


def gallery_figure(sets: Mapping[str, ShownExamples], names: Sequence[str]) -> Figure:
    """Return the examples of evaluation sets below each other; ``names`` has the names of the classes, or none."""
    if not any(sets.values()):
        return sentence_figure(NO_EVALUATION)
    pictures = {name: pictures_of(examples["inputs"]).cpu() for name, examples in sets.items()}
    heights = [34 + _rows_of(found) * (_size(found)[1] + CAPTION) for found in pictures.values()]
    with styled(ON_ANY_PAPER):
        figure = new_figure(NARROW, sum(heights), layout=None)
        parts = figure.subfigures(len(heights), 1, squeeze=False, height_ratios=heights)[:, 0]
        for part, height, (name, examples) in zip(parts, heights, sets.items(), strict=True):
            mistakes = int((examples["said"] != examples["true"]).sum())
            shown = f"{name}: the surest mistakes, then random examples" if mistakes else f"{name}: random examples"
            part.text(14 / NARROW, 1 - 20 / height, shown)
            _draw_examples(part, height, pictures[name], examples, names)
    return figure


def caption(examples: ShownExamples, number: int, names: Sequence[str]) -> list[str]:
    """Return the prediction for an example and its confidence, and the true class.

    >>> import torch
    >>> examples = {name: torch.tensor([value]) for name, value in (("said", 1), ("true", 0), ("sure", 0.75))}
    >>> caption(examples, 0, ["cat", "dog"])
    ['dog, 75%', 'is cat']
    """
    said, true = (int(examples[which][number]) for which in ("said", "true"))
    texts = [short_name(names[one], 16) if 0 <= one < len(names) else str(one) for one in (said, true)]
    sure = f"{texts[0]}, {float(examples['sure'][number]):.0%}"
    return [sure, "of no class" if true < 0 else "right" if said == true else f"is {texts[1]}"]


def _draw_matrix(axes: Axes, matrix: Sequence[Sequence[int]], classes: Sequence[str], cell: float) -> None:
    import numpy

    counts = numpy.array(matrix)
    totals, said = counts.sum(1), counts.sum(0)
    # Colours show the share of a true class, so that rare classes are seen as well as frequent ones. A class without
    # examples is grey.
    shares = numpy.where(totals[:, None] > 0, counts / totals[:, None].clip(1), numpy.nan)
    draw_image(axes, shares, vmin=0, vmax=1, aspect="equal")
    # Names that would overlap are left out.
    shown = range(0, len(classes), max(1, math.ceil(LINE / cell)))
    axes.set_yticks(shown, [short_name(classes[number], CLASS_LETTERS) for number in shown])
    columns = [short_name(classes[number], 8) for number in shown]
    axes.set_xticks(shown, columns, rotation=90 if max(map(len, columns)) > MOST_UPRIGHT else 0)
    axes.xaxis.tick_top()
    beside = axes.secondary_yaxis("right")
    beside.set_yticks(shown, [_rates(totals[number], said[number], counts[number, number]) for number in shown])
    beside.spines[:].set_visible(False)
    for part in (axes, beside):
        part.tick_params(length=0)
    if len(classes) <= MOST_TEXTS:
        _write_counts(axes, counts, shares, cell)


def _rates(total: int, said: int, right: int) -> str:
    """Return the recall and the precision of a class."""
    found = f"{right / total:.1%} of {total:,} found" if total else "none there"
    held = f"{right / said:.1%} of {said:,} right" if said else "never said"
    return f"{found}, {held}"


def _write_counts(axes: Axes, counts: Any, shares: Any, cell: float) -> None:
    size = min(9.0, cell / len(str(counts.max())))
    for row, column in zip(*counts.nonzero(), strict=True):
        colour = "#111111" if shares[row, column] > BRIGHT else "#ffffff"
        text = str(counts[row, column])
        axes.text(column, row, text, color=colour, fontsize=size, ha="center", va="center")


def _draw_examples(part: Any, height: float, pictures: Tensor, examples: ShownExamples, names: Sequence[str]) -> None:
    step, (wide, high) = 1 / EXAMPLES_IN_A_ROW, _size(pictures)
    for number, picture in enumerate(pictures):
        centre = (number % EXAMPLES_IN_A_ROW + 0.5) * step
        bottom = 1 - (34 + high + number // EXAMPLES_IN_A_ROW * (high + CAPTION)) / height
        axes = part.add_axes((centre - wide / NARROW / 2, bottom, wide / NARROW, high / height))
        axes.set_axis_off()
        pixels = picture.permute(1, 2, 0) if len(picture) == 3 else picture[0]
        axes.imshow(pixels.numpy(), cmap="gray", vmin=0, vmax=1, interpolation="none", aspect="auto")
        text = "\n".join(caption(examples, number, names))
        part.text(centre, bottom - 3 / height, text, ha="center", va="top", fontsize=9.5)


def _rows_of(pictures: Tensor) -> int:
    return math.ceil(len(pictures) / EXAMPLES_IN_A_ROW)


def _size(pictures: Tensor) -> tuple[float, float]:
    """Return the drawn width and height of each picture; a picture of one line is drawn at least 16 pixels high."""
    height, width = pictures.shape[-2:]
    scale = EXAMPLE / max(height, width)
    return width * scale, max(16.0, height * scale)
