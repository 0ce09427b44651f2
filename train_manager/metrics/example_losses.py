"""The losses of each example over a training, by its number: mean, spread, and how often it was forgotten."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import zip_longest
from typing import Any, Final, NamedTuple, final

import torch
from torch import Tensor
from torch.nn import functional as F

from train_manager.metrics.deferred import on_host

FULL: Final = 64  # the number of batches that are read at once, because each read waits for the device

COLUMNS: Final = ("epochs", "mean", "squares", "forgotten", "learned", "right")
"""The numbers of each example; ``right`` is 1 or -1 if it was classified rightly or wrongly last, 0 if unknown."""


class ExampleLoss(NamedTuple):
    """A summary of the losses of an example.

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
        # Batches on their device: set, example numbers, losses, rightness.
        self._waiting: list[tuple[str, Tensor, Tensor, Tensor | None]] = []
        # Batches of this process that are in no table yet, where several train together: see join().
        self._held: list[tuple[Any, ...]] = []
        self._tables: dict[str, Tensor] = {}  # of each set, a row for each example number

    def are_all_zero(self) -> bool:
        """Return whether examples were seen, and none of them had another loss than 0."""
        self._read()
        return bool(self._tables) and not any(table[:, 1].any() for table in self._tables.values())

    def append(self, source: str, index: Tensor, losses: Tensor, right: Tensor | None) -> None:
        """Add a batch.

        Args:
            source: the name of its set.
            index: the numbers of its examples.
            losses: theirs.
            right: whether they were classified rightly; None if that is not known.
        """
        self._waiting.append((source, index.detach(), losses.detach(), right))
        if len(self._waiting) == FULL:
            self._read()

    def hold(self, source: str, index: Tensor, losses: Tensor, right: Tensor | None) -> None:
        """Keep a batch, as ``append`` does, until ``join`` adds the batches of all processes."""
        self._held.append((source, index.detach(), losses.detach(), right))
        if len(self._held) % FULL == 0:
            self._held[-FULL:] = [_on_host(batch) for batch in self._held[-FULL:]]

    def totals(self) -> list[tuple[Any, ...]]:
        """Return the batches that are held."""
        return [_on_host(batch) for batch in self._held]

    def join(self, totals: Sequence[Sequence[tuple[Any, ...]]]) -> None:
        """Add the batches that all processes hold, in the order of the steps."""
        self._held = []
        for of_step in zip_longest(*totals):
            for batch in of_step:
                if batch is not None:
                    self.append(*batch)

    def hardest(self, n: int) -> list[ExampleLoss]:
        """Return the examples with the largest mean losses, largest first."""
        self._read()
        found: list[ExampleLoss] = []
        for source, table in self._tables.items():
            numbers = table[:, 0].nonzero().flatten()  # the examples that were seen: `epochs` is not 0
            order = table[numbers, 1].sort(descending=True, stable=True).indices[:n]
            found += [_example(source, number, table[number].tolist()) for number in numbers[order].tolist()]
        return sorted(found, key=lambda one: -one.loss)[:n]

    def state_dict(self) -> dict[str, Any]:
        """Return the numbers of each set."""
        self._read()
        return {source: table.clone() for source, table in self._tables.items()}

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        """Restore what ``state_dict`` returned."""
        self._waiting.clear()
        self._tables = {source: table.clone() for source, table in state.items()}

    def _read(self) -> None:
        for source, index, losses, right in self._waiting:
            index = index.cpu()
            if not len(index):  # of a process without an example in this step
                continue
            table = self._tables.get(source, torch.zeros(0, len(COLUMNS), dtype=torch.double))
            if index.max() >= len(table):  # at least doubled, so that it is not copied for each batch
                table = F.pad(table, (0, 0, 0, max(int(index.max()) + 1 - len(table), len(table))))
            table[index] = _added(table[index], losses.cpu(), None if right is None else right.cpu())
            self._tables[source] = table
        self._waiting.clear()


def _on_host(batch: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple(map(on_host, batch))


def _added(rows: Tensor, losses: Tensor, right: Tensor | None) -> Tensor:
    """Return rows with one more loss in the means and the sums of squared differences (Welford 1962)."""
    epochs, mean, squares, forgotten, learned, before = rows.unbind(1)
    difference = losses - mean
    mean = mean + difference / (epochs + 1)
    squares = squares + difference * (losses - mean)
    if right is not None:
        forgotten = forgotten + ((before == 1) & ~right)  # right the last time, wrong now
        learned, before = learned.maximum(right.double()), right * 2.0 - 1
    return torch.stack([epochs + 1, mean, squares, forgotten, learned, before], 1)


def _example(source: str, number: int, row: list[float]) -> ExampleLoss:
    epochs, mean, squares, forgotten, learned, right = row
    count, was_learned = (int(forgotten), bool(learned)) if right else (None, None)
    return ExampleLoss(number, mean, (squares / epochs) ** 0.5, count, was_learned, int(epochs), source)
