"""Batches of rows, in an order that is a pure function of seed and epoch: the base of ``InMemory`` and ``Rows``.

A subclass makes a batch of row numbers. An order needs no random state but its own, so that reading data changes
nothing else in a training, and the order of an epoch can be computed without the epochs before it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from train_manager.core.errors import InputError
from train_manager.data.description import count_text
from train_manager.validation import require_count


def epoch_order(examples: int, seed: int, epoch: int) -> Tensor:
    """Return the row numbers in the order of one epoch; the same on every machine and device.

    >>> epoch_order(5, seed=0, epoch=0).tolist() == epoch_order(5, seed=0, epoch=0).tolist()
    True
    >>> epoch_order(100, seed=0, epoch=0).equal(epoch_order(100, seed=0, epoch=1))
    False
    """
    bits = np.random.Philox(np.random.SeedSequence((seed, epoch)))
    return torch.from_numpy(np.random.Generator(bits).permutation(examples))


@dataclass
class Position:
    """The epoch of a pass, how many batches it has given, and whether it has ended or was abandoned."""

    epoch: int
    batches: int
    is_over: bool = False


class RowBatches(ABC):
    """Batches of a fixed number of rows, pass after pass.

    ``iter(data)`` begins a pass: the epoch that ``set_epoch`` has set, or else the next one. A TrainManager calls
    ``set_epoch`` itself.
    """

    def __init__(self, examples: int, batch_size: int, shuffle: bool, seed: int, drop_last: bool) -> None:
        name = type(self).__name__
        self.batch_size: int = require_count(batch_size, f"{name}'s batch_size", at_least=1)
        self.seed: int = require_count(seed, f"{name}'s seed", at_least=0)
        self.shuffle = shuffle
        self.drop_last = drop_last
        self.num_examples = examples
        if len(self) == 0:
            raise no_full_batch(name, examples, self.batch_size)
        self._next = Position(epoch=0, batches=0)  # where the next pass begins
        # The state is that of the training's pass, not that of an evaluation of the same data begun during it.
        self._last: Position | None = None
        self._given: Tensor | slice | None = None  # the rows of the batch that was given last

    def __len__(self) -> int:
        full, rest = divmod(self.num_examples, self.batch_size)
        return full + bool(rest and not self.drop_last)

    def __repr__(self) -> str:
        given = [f"{self.num_examples:,} rows", count_text(len(self), self.batch_size)]
        switches = {"shuffle": self.shuffle, "drop_last": self.drop_last}
        given += [f"{name}=True" for name, is_on in switches.items() if is_on]
        return f"{type(self).__name__}({', '.join(given)})"

    def __iter__(self) -> Iterator[Any]:
        position, self._next = self._next, Position(self._next.epoch + 1, 0)
        return self._pass(position)

    @property
    def batches_done(self) -> int:
        """How many batches of the coming pass were given before its state was loaded; 0 at the start of an epoch."""
        return self._next.batches

    @property
    def example_index(self) -> Tensor:
        """The row numbers of the batch that was given last, on the device of the rows; missing before the first one.

        It is made when it is asked for, and waits for no device.
        """
        if self._given is None:
            raise AttributeError(f"{type(self).__name__} has given no batch, so there is no example_index")
        if isinstance(self._given, slice):
            return torch.arange(self._given.start, self._given.stop, device=self._device)
        return self._given.clone()  # the order of the epoch is not to be changed

    def set_epoch(self, epoch: int) -> None:
        """Set the epoch of the next pass, counted from 0. A pass of this epoch that was loaded keeps its position."""
        if epoch != self._next.epoch:
            self._next = Position(require_count(epoch, "epoch", at_least=0), 0)

    def state_dict(self) -> dict[str, int]:
        """Return the seed, the epoch, how many of its batches were given, and the number of examples."""
        last = self._last
        here = last if last is not None and last.batches < len(self) else self._next
        return {"seed": self.seed, "epoch": here.epoch, "batches": here.batches, "examples": self.num_examples}

    def load_state_dict(self, state: Mapping[str, int]) -> None:
        """Continue with the next pass where ``state_dict`` was called, in the same order.

        Raises:
            InputError: the state was saved with another number of examples.
        """
        if state["examples"] != self.num_examples:
            raise InputError(
                f"{type(self).__name__} has {self.num_examples} examples, "
                f"but its state was saved with {state['examples']}",
                name="examples",
                cure="give the data that the state was saved with, or leave the state out",
            )
        self.seed = state["seed"]
        self._next = Position(state["epoch"], state["batches"])
        self._last = None

    @contextmanager
    def left_as_found(self) -> Iterator[None]:
        """Begin the passes in the ``with`` block at their start, and put the position back after it."""
        kept = self._next, self._last, self._given
        self._next = Position(self._next.epoch, 0)
        try:
            yield
        finally:
            self._next, self._last, self._given = kept

    def _pass(self, position: Position) -> Iterator[Any]:
        if self._last is None or self._last.is_over:
            self._last = position
        try:
            for rows in self._rows(position.epoch, position.batches):
                position.batches += 1  # before the yield: a checkpoint written during a batch counts that batch
                self._given = rows
                yield self._batch(rows)
        finally:
            position.is_over = True

    def _rows(self, epoch: int, first: int) -> Iterator[Tensor | slice]:
        """Return the rows of each batch from number ``first`` on; slices if they are in their own order."""
        size = self.batch_size
        end = min(len(self) * size, self.num_examples)
        starts = range(first * size, end, size)
        if not self.shuffle:
            return (slice(start, min(start + size, end)) for start in starts)
        order = epoch_order(self.num_examples, self.seed, epoch)
        order = order.to(self._device, non_blocking=True)  # one copy per epoch, which does not wait
        return (order[start : min(start + size, end)] for start in starts)

    @property
    def _device(self) -> torch.device:
        """The device of the rows."""
        return torch.device("cpu")

    @abstractmethod
    def _batch(self, rows: Tensor | slice) -> Any: ...


def no_full_batch(name: str, examples: int, batch_size: int) -> InputError:
    """Return the error for data that makes no batch at all."""
    if examples == 0:
        return InputError(f"{name} was given no examples: the length is 0", name="data")
    return InputError(
        f"{name} has {examples} examples, fewer than one batch of {batch_size}, and drop_last drops them",
        name="drop_last",
        cure="give a smaller batch_size, or drop_last=False",
    )
