"""Passes over numbered examples, whose position is a few numbers: the base of loaders, ``InMemory`` and ``Rows``.

The order of an epoch is a function of its number, so that a pass can begin in its middle. A subclass computes the
order, and reads the batches.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from train_manager.data.batch import count_text
from train_manager.data.shares import (
    ALONE,
    Place,
    Share,
    Shareable,
    count_of_rank,
    present_place,
    rows_of_rank,
    size_of,
)
from train_manager.telling.errors import InputError
from train_manager.telling.showing import short
from train_manager.validation import require_count


@dataclass
class PassPosition:
    """The position of one pass."""

    epoch: int
    batches: int  # the number of batches that were given, those before a resume included
    is_over: bool = False  # ended, or abandoned


class Passes(Shareable):
    """Batches of a fixed number of examples, pass after pass.

    ``iter(data)`` begins a pass: the epoch that ``set_epoch`` has set, or else the next one. A TrainManager calls
    ``set_epoch`` itself.

    Args:
        examples: how many there are.
        size: the examples of a batch.
        shuffle: whether each epoch has an order of its own.
        seed: determines the orders.
        drop_last: whether a last batch that is not full is dropped.
    """

    def __init__(self, examples: int, size: int, shuffle: bool, seed: int, drop_last: bool) -> None:
        name = type(self).__name__
        self._size: int = require_count(size, f"{name}'s batch_size", at_least=1)
        self.seed: int = require_count(seed, f"{name}'s seed", at_least=0)
        self.shuffle = shuffle
        self.drop_last = drop_last
        self.num_examples = examples
        if Passes.__len__(self) == 0:
            raise no_full_batch(name, examples, self._size)
        self._next = PassPosition(epoch=0, batches=0)  # of the coming pass
        # Of the pass of the training, whose position is saved, also while an evaluation reads the same data.
        self._last: PassPosition | None = None
        self._given: Tensor | slice | None = None  # the numbers of the examples in the batch that was given last

    def __getstate__(self) -> dict[str, Any]:
        """Return the attributes of a copy, which is where its original was."""
        # A copied pass is over: nobody reads it, and the next pass of the copy must take its place.
        return {**self.__dict__, "_last": None if self._last is None else replace(self._last, is_over=True)}

    def __len__(self) -> int:
        full, rest = divmod(self.num_examples, self._size)
        return full + bool(rest and not self.drop_last)

    @property
    def rest(self) -> int:
        """The examples of a last batch that is not full; 0 if each batch of a pass is full."""
        return 0 if self.drop_last else self.num_examples % self._size

    def __repr__(self) -> str:
        given = [f"{self.num_examples:,} rows", count_text(len(self), self._size)]
        switches = {"shuffle": self.shuffle, "drop_last": self.drop_last}
        given += [f"{name}=True" for name, is_on in switches.items() if is_on]
        return f"{type(self).__name__}({', '.join(given)})"

    def __iter__(self) -> Iterator[Any]:
        # A copy, because copy.copy(data) shares the Position in `_next`, and `_pass` counts in it.
        position, self._next = replace(self._next), PassPosition(self._next.epoch + 1, 0)
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
            return torch.arange(self._given.start, self._given.stop, self._given.step or 1, device=self._device)
        return self._given.clone()  # a copy: changing it must not change the order of the epoch

    def set_epoch(self, epoch: int) -> None:
        """Set the epoch of the next pass, counted from 0. A pass of this epoch that was loaded keeps its position."""
        if epoch != self._next.epoch:
            self._next = PassPosition(require_count(epoch, "epoch", at_least=0), 0)

    def state_dict(self) -> dict[str, Any]:
        """Return the epoch, how many of its batches were given, and what determines which examples these were."""
        last = self._last
        # After the last batch of a pass the state is the beginning of the next one.
        here = last if last is not None and last.batches < len(self) else self._next
        return {"epoch": here.epoch, "batches": here.batches, "seed": self.seed, **self._fixed_arguments()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue with the next pass where ``state_dict`` was called, in the same order.

        The batch size and ``shuffle`` may be others than those of the state only at the start of an epoch.

        Raises:
            InputError: the state was saved with another number of examples; or within an epoch, whose rest would be
                other examples, with another batch size or order; or it is not of such data.
        """
        name = type(self).__name__
        here, there = self._fixed_arguments(), {key: state.get(key) for key in self._fixed_arguments()}
        if not {"epoch", "batches", "seed", *here} <= set(state):
            raise InputError(
                f"{name} was given the state of something else, with {short(list(state))}",
                name="state",
                cure="give what state_dict() of the same data returned",
            )
        if here["examples"] != there["examples"]:
            raise InputError(
                f"{name} has {here['examples']} examples, but its state was saved with {there['examples']}",
                name="examples",
                cure="give the data that the state was saved with, or leave the state out",
            )
        # Within an epoch the rest of it would be other examples than those that were not given yet.
        for key in ("batch_size", "shuffle"):
            if state["batches"] and here[key] != there[key]:
                raise InputError(
                    f"{name} has {key}={here[key]}, but its state was saved within an epoch with {key}={there[key]}",
                    name=key,
                    cure=f"give {key}={there[key]}; it may be changed at the start of an epoch",
                )
        # The saved seed wins: with another one the rest of the epoch would have another order.
        self.seed = state["seed"]
        self._next = PassPosition(state["epoch"], state["batches"])
        self._last = None

    @contextmanager
    def left_as_found(self) -> Iterator[None]:
        """Begin the passes in the ``with`` block at their start, and put the position back after it."""
        kept = self._next, self._last, self._given
        self._next = PassPosition(self._next.epoch, 0)
        try:
            yield
        finally:
            self._next, self._last, self._given = kept

    def require_size_for(self, number: int, name: str) -> None:
        """Refuse batches with fewer rows than processes that share them.

        Args:
            number: of processes.
            name: the name of the data in the error.

        Raises:
            InputError: the batch size is smaller.
        """
        if self._size < number:
            what = (
                f"{name} ({type(self).__name__}) makes batches of {self._size}, which {number} processes cannot share"
            )
            cure = f"give a batch_size of at least {number}: all processes together make a step"
            raise InputError(what, name="batch_size", asked_by="Distributed", cure=cure)

    def _fixed_arguments(self) -> dict[str, Any]:
        return {"examples": self.num_examples, "batch_size": self._size, "shuffle": self.shuffle}

    def _pass(self, position: PassPosition) -> Iterator[Any]:
        # A second pass begun during the first is an evaluation: the state stays that of the first.
        if self._last is None or self._last.is_over:
            self._last = position
        try:
            place = present_place()
            with self._reading(position) as read:
                for rows in self._rows(position.epoch, position.batches):
                    is_whole = place is ALONE
                    yield self._give(position, rows, read) if is_whole else self._share(position, rows, read, place)
        finally:
            position.is_over = True

    def _share(
        self, position: PassPosition, rows: Tensor | slice, read: Callable[[Tensor | slice], Any], place: Place
    ) -> Share:
        """Return what one of several processes gets of the next batch."""
        batch = self._give(position, rows_of_rank(rows, place), read)
        return Share(batch, count_of_rank(rows, place), size_of(rows))

    def _give(self, position: PassPosition, rows: Tensor | slice, read: Callable[[Tensor | slice], Any]) -> Any:
        """Return the next batch, which only counts if it could be read."""
        batch = read(rows)  # a local of this method: in `_pass` it would stay alive while the next batch is read
        position.batches += 1  # before it is given: a checkpoint written during a batch counts that batch
        self._given = rows
        return batch

    def _rows(self, epoch: int, first: int) -> Iterator[Tensor | slice]:
        """Return the rows of each batch from number ``first`` on; slices if they are in their own order."""
        size = self._size
        end = min(len(self) * size, self.num_examples)
        starts = range(first * size, end, size)
        if not self.shuffle:
            return (slice(start, min(start + size, end)) for start in starts)
        order = self._order(epoch)
        return (order[start : min(start + size, end)] for start in starts)

    @property
    def _device(self) -> torch.device:
        """The device of the rows."""
        return torch.device("cpu")

    @abstractmethod
    def _order(self, epoch: int) -> Tensor:
        """Return the row numbers in the order of a shuffled epoch, on the device of the rows."""

    @abstractmethod
    def _reading(self, position: PassPosition) -> AbstractContextManager[Callable[[Tensor | slice], Any]]:
        """Give a function that returns one batch after the other from a position on, given their rows."""


def no_full_batch(name: str, examples: int, batch_size: int) -> InputError:
    """Return the error for data that makes no batch at all."""
    if examples == 0:
        return InputError(f"{name} was given no examples: the length is 0", name="data")
    return InputError(
        f"{name} has {examples} examples, fewer than one batch of {batch_size}, and drop_last drops them",
        name="drop_last",
        cure="give a smaller batch_size, or drop_last=False",
    )


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
    """Batches that are made of row numbers: the base of ``InMemory`` and ``Rows``.

    An order needs no random state but its own, so that reading data changes nothing else in a training.
    """

    def __init__(self, examples: int, batch_size: int, shuffle: bool, seed: int, drop_last: bool) -> None:
        super().__init__(examples, batch_size, shuffle, seed, drop_last)
        self.batch_size = self._size  # public, as that of a DataLoader

    def _order(self, epoch: int) -> Tensor:
        order = epoch_order(self.num_examples, self.seed, epoch)
        return order.to(self._device, non_blocking=True)  # one copy per epoch, which does not wait

    def _reading(self, position: PassPosition) -> AbstractContextManager[Callable[[Tensor | slice], Any]]:
        # A batch depends on its rows alone, so there is no reader to open or close.
        return nullcontext(self._batch)

    @abstractmethod
    def _batch(self, rows: Tensor | slice) -> Any: ...
