"""Passes over rows, batch by batch, whose order is a pure function of (seed, epoch).

The base of ``InMemory`` and ``Rows``, which say how a batch is made of its row numbers. No random state but the one
that is made here for a pass is touched, so reading data changes nothing else in a training, and the order of an epoch
can be had again without the epochs before it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from train_manager.core.errors import InputError
from train_manager.validation import require_count


def epoch_order(examples: int, seed: int, epoch: int) -> Tensor:
    """The row numbers in the order of one epoch; the same on every machine and device.

    >>> epoch_order(5, seed=0, epoch=0).tolist() == epoch_order(5, seed=0, epoch=0).tolist()
    True
    >>> epoch_order(100, seed=0, epoch=0).equal(epoch_order(100, seed=0, epoch=1))
    False
    """
    bits = np.random.Philox(np.random.SeedSequence((seed, epoch)))
    return torch.from_numpy(np.random.Generator(bits).permutation(examples))


@dataclass
class Position:
    """How far a pass has come, and whether anybody still reads it."""

    epoch: int
    batches: int
    is_over: bool = False


class Passes(ABC):
    """Batches of so many rows, pass after pass.

    ``iter(data)`` begins a pass: that of the epoch which ``set_epoch`` has named, else of the one after the last. A
    TrainManager names the epoch itself.
    """

    def __init__(self, examples: int, batch_size: int, shuffle: bool, seed: int, drop_last: bool) -> None:
        name = type(self).__name__
        self.batch_size = require_count(batch_size, f"{name}'s batch_size", at_least=1)
        self.seed = require_count(seed, f"{name}'s seed", at_least=0)
        self.shuffle = shuffle
        self.drop_last = drop_last
        self.num_examples = examples
        if len(self) == 0:
            raise nothing_to_give(name, examples, self.batch_size)
        self._next = Position(epoch=0, batches=0)  # where the next pass begins
        self._last: Position | None = None  # of the last pass; not of one that was begun while another was read

    def __len__(self) -> int:
        whole, rest = divmod(self.num_examples, self.batch_size)
        return whole + bool(rest and not self.drop_last)

    def __iter__(self) -> Iterator[Any]:
        position, self._next = self._next, Position(self._next.epoch + 1, 0)
        return self._pass(position)

    def set_epoch(self, epoch: int) -> None:
        """Say which epoch the next pass is, counted from 0. One that was loaded goes on where it was."""
        if epoch != self._next.epoch:
            self._next = Position(require_count(epoch, "epoch", at_least=0), 0)

    def state_dict(self) -> dict[str, int]:
        """Three numbers: the seed, the epoch, and how many of its batches have been given."""
        last = self._last
        here = last if last is not None and last.batches < len(self) else self._next
        return {"seed": self.seed, "epoch": here.epoch, "batches": here.batches, "examples": self.num_examples}

    def load_state_dict(self, state: Mapping[str, int]) -> None:
        """Let the next pass go on where ``state_dict`` was asked, in the order of then.

        Raises:
            InputError: it was of data with another number of examples, or of other batches.
        """
        if state["examples"] != self.num_examples:
            raise InputError(
                f"{type(self).__name__} holds {self.num_examples} examples, "
                f"but its state is of {state['examples']}, whose order was another",
                name="examples",
                cure="give the data that the state was saved with, or leave its state out",
            )
        self.seed = state["seed"]
        self._next = Position(state["epoch"], state["batches"])
        self._last = None

    def _pass(self, position: Position) -> Iterator[Any]:
        if self._last is None or self._last.is_over:
            self._last = position
        try:
            for rows in self._rows(position.epoch, position.batches):
                position.batches += 1  # before the batch is given: a state that is taken while it is used counts it
                yield self._batch(rows)
        finally:
            position.is_over = True

    def _rows(self, epoch: int, first: int) -> Iterator[Tensor | slice]:
        """Which rows make each batch from the first one on; a slice where they are neighbours."""
        size = self.batch_size
        end = min(len(self) * size, self.num_examples)
        starts = range(first * size, end, size)
        if not self.shuffle:
            return (slice(start, min(start + size, end)) for start in starts)
        order = self._placed(epoch_order(self.num_examples, self.seed, epoch))
        return (order[start : min(start + size, end)] for start in starts)

    def _placed(self, order: Tensor) -> Tensor:
        """The order, on the device where it is used."""
        return order

    @abstractmethod
    def _batch(self, rows: Tensor | slice) -> Any: ...


def nothing_to_give(name: str, examples: int, batch_size: int) -> InputError:
    """The error for data that has no batch at all."""
    if examples == 0:
        return InputError(f"{name} was given no examples: the length is 0", name="data")
    return InputError(
        f"{name} has {examples} examples, fewer than one batch of {batch_size}, and drop_last leaves none",
        name="drop_last",
        cure="take a smaller batch_size, or drop_last=False",
    )
