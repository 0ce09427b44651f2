"""Columns of several optimizers or kinds, and their way into a store."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, final

import torch

from train_manager.metrics.column_windows import width_after
from train_manager.metrics.columns import Columns


@final
class ColumnsByName(dict[str, Columns]):
    """Columns by the name under which a store has them; each begins with its first vector.

    >>> series = ColumnsByName()
    >>> series.of("gradient_norms", ["0 Linear"]) is series.of("gradient_norms", ["0 Linear"])
    True
    >>> other = series.of("gradient_norms", ["0 Linear", "1 Linear"])  # of other layers
    >>> list(series)
    ['gradient_norms', 'gradient_norms (2)']
    """

    def of(self, name: str, labels: Sequence[str], parts_of: Sequence[int] = (), counts: Sequence[int] = ()) -> Columns:
        """Return the columns of a name for these layers."""
        # Vectors of other layers, as after a layer was added, get columns of their own, "name (2)".
        found, number = name, 1
        while found in self and (self[found].labels != list(labels) or self[found].counts != list(counts)):
            number += 1
            found = f"{name} ({number})"
        if found not in self:
            self[found] = Columns(labels, parts_of, counts)
        return self[found]

    def send(self, writer: Any) -> None:
        """Take all vectors, and give a store the windows that it does not have; None takes them only."""
        for name, columns in self.items():
            columns.take()
            if writer is None:
                continue
            # The counts do not change, so they are written once, before the first window.
            if columns.counts and not columns.sent and columns.rows:
                writer.array(f"{name}_counts", torch.tensor(columns.counts, dtype=torch.float), columns.labels)
            for number, row in enumerate(columns.rows[columns.sent :], start=columns.sent):
                writer.array(name, row.mean, columns.labels, step=row.step)
                if width_after(number) > 1:  # the largest of a single step is the number itself
                    writer.array(f"{name}_largest", row.largest, columns.labels, step=row.step)
            columns.sent = len(columns.rows)

    def state_dict(self) -> dict[str, Any]:
        """Return all columns."""
        return {name: columns.state_dict() for name, columns in self.items()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore what ``state_dict`` returned."""
        self.clear()
        for name, saved in state.items():
            self[name] = Columns(())  # its labels come with the state
            self[name].load_state_dict(saved)
