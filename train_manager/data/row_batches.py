"""Batches of rows, in an order that is a pure function of seed and epoch: the base of ``InMemory`` and ``Rows``.

A subclass makes a batch of row numbers. An order needs no random state but its own, so that reading data changes
nothing else in a training, and the order of an epoch can be computed without the epochs before it.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import numpy as np
import torch
from torch import Tensor

from train_manager.data.passes import Passes, Position


def epoch_order(examples: int, seed: int, epoch: int) -> Tensor:
    """Return the row numbers in the order of one epoch; the same on every machine and device.

    >>> epoch_order(5, seed=0, epoch=0).tolist() == epoch_order(5, seed=0, epoch=0).tolist()
    True
    >>> epoch_order(100, seed=0, epoch=0).equal(epoch_order(100, seed=0, epoch=1))
    False
    """
    # A counter-based generator, seeded by both numbers: any epoch can be computed without the epochs before it.
    bits = np.random.Philox(np.random.SeedSequence((seed, epoch)))
    return torch.from_numpy(np.random.Generator(bits).permutation(examples))


class RowBatches(Passes):
    """Batches that are made of row numbers."""

    def __init__(self, examples: int, batch_size: int, shuffle: bool, seed: int, drop_last: bool) -> None:
        super().__init__(examples, batch_size, shuffle, seed, drop_last)
        self.batch_size = self._size  # public, as that of a DataLoader

    def _order(self, epoch: int) -> Tensor:
        order = epoch_order(self.num_examples, self.seed, epoch)
        return order.to(self._device, non_blocking=True)  # one copy per epoch, which does not wait

    def _reading(self, position: Position) -> AbstractContextManager[Callable[[Tensor | slice], Any]]:
        # A batch depends on its rows alone, so there is no reader to open or close.
        return nullcontext(self._batch)

    @abstractmethod
    def _batch(self, rows: Tensor | slice) -> Any: ...
