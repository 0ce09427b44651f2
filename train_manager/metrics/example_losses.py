"""The losses of each example over a training, by its number: mean, spread, and how often it was forgotten.

They stay on their device until some batches of them are read at once.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple, TypeAlias, final

import torch
from torch import Tensor

FULL: Final = 64  # so many batches are read at once

COLUMNS: Final = {
    **{"epochs": torch.long, "mean": torch.double, "squares": torch.double},
    **{"forgotten": torch.long, "learned": torch.bool, "right": torch.int8},
}

Seen: TypeAlias = tuple[str, Tensor, Tensor, Tensor | None]
"""Of a batch: the name of its set, and of its examples the numbers, the losses, and whether they were classified
rightly, if that is known."""


class ExampleLoss(NamedTuple):
    """What the losses of an example were.

    Attributes:
        number: its own in the data.
        loss: the mean.
        variability: the standard deviation over epochs.
        forgotten: how often it was classified wrongly after it had been rightly; None if classes are not known.
        learned: whether it was ever classified rightly; None as above.
        epochs: how often it was seen.
        source: the name of the set that it is of.
    """

    number: int
    loss: float
    variability: float
    forgotten: int | None
    learned: bool | None
    epochs: int
    source: str


@final
class ExampleLosses:
    """The losses of all examples that were seen.

    >>> losses = ExampleLosses()
    >>> for right in (True, False):
    ...     of_two = torch.tensor([0.5, 2.0 + right])
    ...     losses.append("train", torch.tensor([7, 3]), of_two, torch.tensor([True, right]))
    >>> losses.hardest(1)
    [ExampleLoss(number=3, loss=2.5, variability=0.5, forgotten=1, learned=True, epochs=2, source='train')]
    """

    def __init__(self) -> None:
        self._waiting: list[Seen] = []
        self._tables: dict[str, dict[str, Tensor]] = {}

    def append(self, source: str, index: Tensor, losses: Tensor, right: Tensor | None) -> None:
        """Add a batch; one in 64 waits for the device."""
        self._waiting.append((source, index.detach(), losses.detach(), right))
        if len(self._waiting) == FULL:
            self._read()

    def hardest(self, n: int) -> list[ExampleLoss]:
        """Return the examples with the largest mean losses, largest first."""
        self._read()
        found: list[ExampleLoss] = []
        for source, table in self._tables.items():
            means = torch.where(table["epochs"] > 0, table["mean"], -torch.inf)
            seen = int((table["epochs"] > 0).sum())
            order = means.sort(descending=True, stable=True).indices[: min(n, seen)]
            found += [_example(source, table, index) for index in order.tolist()]
        return sorted(found, key=lambda one: -one.loss)[:n]

    def state_dict(self) -> dict[str, Any]:
        """Return the numbers of each set."""
        self._read()
        return {
            source: {name: column.clone() for name, column in table.items()} for source, table in self._tables.items()
        }

    def load_state_dict(self, state: Mapping[str, Mapping[str, Tensor]]) -> None:
        """Restore what ``state_dict`` returned."""
        self._waiting.clear()
        self._tables = {source: {name: one.clone() for name, one in table.items()} for source, table in state.items()}

    def _read(self) -> None:
        waiting, self._waiting = self._waiting, []
        for source, index, losses, right in waiting:
            index = index.cpu().long()
            table = self._tables[source] = _with_room(self._tables.get(source), int(index.max()) + 1)
            _add(table, index, losses.cpu().double(), None if right is None else right.cpu())


def _with_room(table: dict[str, Tensor] | None, size: int) -> dict[str, Tensor]:
    table = table or {name: torch.zeros(0, dtype=dtype) for name, dtype in COLUMNS.items()}
    more = size - len(table["epochs"])
    if more <= 0:
        return table
    more = max(more, len(table["epochs"]))  # doubled, so that a set of unknown size is not copied for each batch
    empty = {"right": -1}  # not known
    return {
        name: torch.cat([one, torch.full((more,), empty.get(name, 0), dtype=one.dtype)]) for name, one in table.items()
    }


def _add(table: dict[str, Tensor], index: Tensor, losses: Tensor, right: Tensor | None) -> None:
    """Add losses to means and sums of squared differences (Welford's algorithm)."""
    table["epochs"][index] += 1
    difference = losses - table["mean"][index]
    table["mean"][index] += difference / table["epochs"][index]
    table["squares"][index] += difference * (losses - table["mean"][index])
    if right is not None:
        table["forgotten"][index] += (table["right"][index] == 1) & ~right
        table["learned"][index] |= right
        table["right"][index] = right.to(torch.int8)


def _example(source: str, table: Mapping[str, Tensor], index: int) -> ExampleLoss:
    epochs = int(table["epochs"][index])
    variability = float(table["squares"][index] / epochs) ** 0.5
    is_known = int(table["right"][index]) >= 0
    forgotten = int(table["forgotten"][index]) if is_known else None
    learned = bool(table["learned"][index]) if is_known else None
    return ExampleLoss(index, float(table["mean"][index]), variability, forgotten, learned, epochs, source)
