"""Numbers of layers over a training: vectors that stay on their device, are read together and joined into windows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, final

import torch
from torch import Tensor

from train_manager.metrics.column_windows import Column, as_lists, from_lists, move_full_windows
from train_manager.metrics.deferred import numbers
from train_manager.metrics.layer_norms import norms_by_layer

FULL: Final = 64  # vectors that one copy brings to the host


@final
class Columns:
    """Vectors of a training, in windows that grow with it: some 4,300 for 100,000 steps. A full window never changes.

    >>> columns = Columns(["0 Linear", "2 Linear"])
    >>> for step in (1, 2):
    ...     is_full = columns.append(torch.tensor([.5, float("nan")]) * step, step, weight=16)
    >>> columns.take()
    >>> [(column.step, column.mean.tolist()) for column in columns.rows]
    [(1, [0.5, nan]), (2, [1.0, nan])]

    Args:
        labels: the names of the layers.
        parts_of: the layer of each parameter, if a vector has the norm of each parameter: these norms are joined to the
            norm of the layer, without norms below 0, which stand for a missing gradient. Empty if a vector has a number
            for each layer.
        counts: how many numbers the norm of each layer is taken over.
    """

    def __init__(self, labels: Sequence[str], parts_of: Sequence[int] = (), counts: Sequence[int] = ()) -> None:
        self.labels, self.parts_of, self.counts = list(labels), list(parts_of), list(counts)
        self.rows: list[Column] = []  # full windows
        self.sent = 0  # the number of rows that a store has
        self._waiting: list[tuple[Tensor, int, Any]] = []  # vectors on their device, with step and weight
        self._open: list[Column] = []  # single steps, until they fill a window

    def append(self, vector: Tensor, step: int, weight: Any) -> bool:
        """Keep a vector that nobody changes, and return whether so many are kept that they should be taken."""
        self._waiting.append((vector.detach(), step, weight))
        return len(self._waiting) >= FULL

    def take(self) -> None:
        """Copy the waiting vectors to the host, all at once, and join steps that fill a window."""
        if self._waiting:
            vectors, steps, weights = zip(*self._waiting, strict=True)
            self._waiting.clear()
            # In 64 bits, because the squares of large norms overflow 32.
            read = torch.stack(vectors).cpu().double()
            read = norms_by_layer(read, self.parts_of, len(self.labels)) if self.parts_of else read
            rows = read.float().unbind()
            # Mean and largest of a single step are the same.
            self._open += map(Column, steps, numbers(weights), rows, rows)
        move_full_windows(self._open, self.rows)

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
