"""Windows of the numbers of layers: single steps at first, then wider and wider ones."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

import torch
from torch import Tensor

SINGLE: Final = 1000  # the number of windows of one step
THEN: Final = 500  # the number of windows of 2 steps, then of 4, of 8 and so on


class Column(NamedTuple):
    """A window of steps: its last step, its examples, and for each layer the mean and the largest number."""

    step: int
    weight: float
    mean: Tensor
    largest: Tensor


def width_after(rows: int) -> int:
    """Return the number of steps of the next window, after so many windows.

    >>> [width_after(rows) for rows in (0, 999, 1000, 1499, 1500, 2000)]
    [1, 1, 2, 2, 4, 8]
    """
    return 1 if rows < SINGLE else int(2 ** ((rows - SINGLE) // THEN + 1))


def move_full_windows(steps: list[Column], rows: list[Column]) -> None:
    """Join the first of some steps, as many as fill windows, and move them behind the windows that are there."""
    while True:
        width = width_after(len(rows))
        # As many windows as are left of this width, before the width doubles.
        of_this_width = SINGLE - len(rows) if width == 1 else THEN - (len(rows) - SINGLE) % THEN
        count = min(len(steps) // width, of_this_width) * width
        if not count:
            return
        rows += joined(steps[:count], width)
        del steps[:count]


def joined(columns: Sequence[Column], width: int = 0) -> list[Column]:
    """Return windows of so many columns each, in which every example counts once; one window if no width is given.

    >>> joined([Column(step, 16, vector, vector) for step, vector in ((1, torch.ones(1)), (2, torch.ones(1) * 3))])
    [Column(step=2, weight=32, mean=tensor([2.]), largest=tensor([3.]))]

    A number that is nan is left out of its window, and is nan if all are.
    """
    width = width or len(columns)
    if width == 1:
        return list(columns)
    steps, weights, means, largest = zip(*columns, strict=True)
    together = torch.stack(means).unflatten(0, (-1, width))  # window, column, layer
    # The weight of a column is its number of examples. A nan weighs nothing.
    each = torch.tensor(weights, dtype=torch.double).reshape(-1, width)
    seen = each[:, :, None] * ~together.isnan()
    # nan_to_num, because nan * 0 would be nan; infinities stay. Without any weight it is 0 / 0, which is nan.
    mean = ((together.nan_to_num(0.0, torch.inf, -torch.inf) * seen).sum(1) / seen.sum(1)).float()
    highest = torch.stack(largest).nan_to_num(-torch.inf, torch.inf, -torch.inf).unflatten(0, (-1, width)).amax(1)
    # -inf stands for nan in the largest; where all were nan, the mean is nan, and so is the largest.
    highest = torch.where(mean.isnan(), mean, highest)
    sums = [sum(weights[first : first + width]) for first in range(0, len(weights), width)]
    return [*map(Column, steps[width - 1 :: width], sums, mean.unbind(), highest.unbind())]


def as_lists(columns: Sequence[Column]) -> dict[str, Any]:
    """Return columns as a checkpoint holds them; an empty dict for no columns."""
    if not columns:
        return {}
    steps, weights, means, largest = zip(*columns, strict=True)
    return {"steps": [*steps], "weights": [*weights], "means": torch.stack(means), "largest": torch.stack(largest)}


def from_lists(state: Mapping[str, Any]) -> list[Column]:
    """Return the columns that ``as_lists`` was given."""
    return [*map(Column, *(state[name] for name in ("steps", "weights", "means", "largest")))] if state else []
