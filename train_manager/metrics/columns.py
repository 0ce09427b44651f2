"""Numbers of layers over a training: vectors that stay on their device, are read together and joined into windows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple, final

import torch
from torch import Tensor

from train_manager.metrics.deferred import numbers
from train_manager.metrics.layer_norms import norms_by_layer

FULL: Final = 64  # vectors that one copy brings to the host
SINGLE: Final = 1000  # windows of one step
THEN: Final = 500  # windows of 2 steps, then of 4, of 8 and so on


class Column(NamedTuple):
    """A window of steps: its last step, its examples, and for each layer the mean and the largest number."""

    step: int
    weight: float
    mean: Tensor
    largest: Tensor


@final
class Columns:
    """Vectors of a training, in windows that grow with it: some 4,300 for 100,000 steps. Nothing that is there changes.

    >>> columns = Columns(["0 Linear", "2 Linear"])
    >>> for step in (1, 2):
    ...     is_full = columns.append(torch.tensor([.5, float("nan")]) * step, step, weight=16)
    >>> columns.take()
    >>> [(column.step, column.mean.tolist()) for column in columns.rows]
    [(1, [0.5, nan]), (2, [1.0, nan])]

    A number that is nan is left out of its window, and is nan if all are.

    Args:
        labels: the names of the layers.
        parts_of: the layer that each number of a vector is a part of; the norms of a layer's parts are joined to its
            norm, without those below 0, which stand for none. None if a vector has a number for each layer.
        counts: how many numbers the norm of each layer is of.
    """

    def __init__(self, labels: Sequence[str], parts_of: Sequence[int] = (), counts: Sequence[int] = ()) -> None:
        self.labels, self.parts_of, self.counts = list(labels), list(parts_of), list(counts)
        self.rows: list[Column] = []
        self.sent = 0  # rows that a store has
        self._waiting: list[tuple[Tensor, int, Any]] = []  # on their device
        self._open: list[Column] = []  # single steps, of a window that is not full

    def append(self, vector: Tensor, step: int, weight: Any) -> bool:
        """Keep a vector that nobody changes, and return whether so many are kept that they should be taken."""
        self._waiting.append((vector.detach(), step, weight))
        return len(self._waiting) >= FULL

    def take(self) -> None:
        """Read what was kept, with one copy, and join what fills a window."""
        if self._waiting:
            vectors, steps, weights = zip(*self._waiting, strict=True)
            self._waiting.clear()
            read = torch.stack(vectors).cpu().double()
            read = norms_by_layer(read, self.parts_of, len(self.labels)) if self.parts_of else read
            read = read.float()
            self._open += map(Column, steps, numbers(weights), read, read)
        while count := self._full_windows(width := width_after(len(self.rows))):
            self.rows += joined(self._open[: count * width], width)
            del self._open[: count * width]

    def _full_windows(self, width: int) -> int:
        """Return how many windows of a width are full, up to the next one that is wider."""
        left = SINGLE - len(self.rows) if width == 1 else THEN - (len(self.rows) - SINGLE) % THEN
        return min(len(self._open) // width, left)

    def state_dict(self) -> dict[str, Any]:
        """Return all windows, and the vectors of the open one."""
        self.take()
        made = {"labels": [*self.labels], "parts_of": [*self.parts_of], "counts": [*self.counts]}
        return {**made, "sent": self.sent, "rows": as_lists(self.rows), "open": as_lists(self._open)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore what ``state_dict`` returned."""
        self.labels, self.parts_of, self.counts = (list(state[name]) for name in ("labels", "parts_of", "counts"))
        self.rows, self._open = from_lists(state["rows"]), from_lists(state["open"])
        self._waiting, self.sent = [], state["sent"]


def as_lists(columns: Sequence[Column]) -> dict[str, Any]:
    """Return columns as a checkpoint holds them; of none nothing."""
    if not columns:
        return {}
    steps, weights, means, largest = zip(*columns, strict=True)
    return {"steps": [*steps], "weights": [*weights], "means": torch.stack(means), "largest": torch.stack(largest)}


def from_lists(state: Mapping[str, Any]) -> list[Column]:
    """Return what ``as_lists`` was given."""
    return [*map(Column, *(state[name] for name in ("steps", "weights", "means", "largest")))] if state else []


def width_after(rows: int) -> int:
    """Return of how many steps the next window is, after so many windows.

    >>> [width_after(rows) for rows in (0, 999, 1000, 1499, 1500, 2000)]
    [1, 1, 2, 2, 4, 8]
    """
    return 1 if rows < SINGLE else int(2 ** ((rows - SINGLE) // THEN + 1))


def joined(columns: Sequence[Column], width: int = 0) -> list[Column]:
    """Return windows of so many columns each, in which every example counts once; one window if no width is given.

    >>> joined([Column(step, 16, vector, vector) for step, vector in ((1, torch.ones(1)), (2, torch.ones(1) * 3))])
    [Column(step=2, weight=32, mean=tensor([2.]), largest=tensor([3.]))]
    """
    width = width or len(columns)
    if width == 1:
        return list(columns)
    steps, weights, means, largest = zip(*columns, strict=True)
    together = torch.stack(means).unflatten(0, (-1, width))  # window, column, layer
    each = torch.tensor(weights, dtype=torch.double).reshape(-1, width)
    seen = each[:, :, None] * ~together.isnan()
    mean = ((together.nan_to_num(0.0, torch.inf, -torch.inf) * seen).sum(1) / seen.sum(1)).float()
    highest = torch.stack(largest).nan_to_num(-torch.inf, torch.inf, -torch.inf).unflatten(0, (-1, width)).amax(1)
    highest = torch.where(mean.isnan(), mean, highest)
    sums = [sum(weights[first : first + width]) for first in range(0, len(weights), width)]
    return [*map(Column, steps[width - 1 :: width], sums, mean, highest)]
