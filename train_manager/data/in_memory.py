"""Batches of arrays that are already there: no workers, no examples taken one by one and put together again."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, final

import numpy as np
import torch
from torch import Tensor

from train_manager.core.errors import InputError
from train_manager.data.row_batches import Passes


@final
class InMemory(Passes):
    """Batches of tensors or numpy arrays, by row, on the device where the arrays are.

    >>> import torch
    >>> from train_manager import InMemory
    >>> x, y = torch.rand(10, 3), torch.arange(10)
    >>> data = InMemory(x, y, batch_size=4, shuffle=True, seed=0)
    >>> len(data), [len(inputs) for inputs, targets in data]
    (3, [4, 4, 2])

    The order of an epoch is a pure function of the seed and of the number of the epoch. Each ``iter()`` is the next
    epoch, ``data.set_epoch(3)`` makes the next one epoch 3 (counted from 0); a TrainManager does so itself.

    Batches are tensors of their own: what is done to one in place does not change the data. One array gives its
    rows alone, several give a tuple, a dict of arrays gives a dict:

    >>> next(iter(InMemory({"inputs": x, "targets": y}, batch_size=4)))["targets"]
    tensor([0, 1, 2, 3])

    Args:
        arrays: tensors or numpy arrays, of one length; or one dict of them.
        batch_size: how many rows a batch has; the last one may have fewer.
        shuffle: a new order in each epoch, else always that of the rows.
        seed: what the orders are made of.
        drop_last: leave a last batch out that is not full.
        device: move all arrays there, once; for data that fits beside the model.

    Raises:
        InputError: the arrays are not of one length, hold no numbers, or make no batch.
    """

    def __init__(
        self,
        *arrays: Any,
        batch_size: int,
        shuffle: bool = False,
        seed: int = 0,
        drop_last: bool = False,
        device: torch.device | str | None = None,
    ) -> None:
        named = arrays[0] if len(arrays) == 1 and isinstance(arrays[0], Mapping) else None
        self._names = None if named is None else tuple(named)
        given = arrays if named is None else tuple(named.values())
        labels = range(1, len(given) + 1) if named is None else map(repr, named)
        self._arrays = tuple(
            as_rows(array, f"array {label}", device) for array, label in zip(given, labels, strict=True)
        )
        super().__init__(one_length(self._arrays), batch_size, shuffle, seed, drop_last)

    def _placed(self, order: Tensor) -> Tensor:
        return order.to(self._arrays[0].device, non_blocking=True)  # once per epoch, and without waiting for it

    def _batch(self, rows: Tensor | slice) -> Any:
        parts = [rows_of(array, rows) for array in self._arrays]
        if self._names is not None:
            return dict(zip(self._names, parts, strict=True))
        return parts[0] if len(parts) == 1 else tuple(parts)


def rows_of(array: Tensor, rows: Tensor | slice) -> Tensor:
    """A copy of some rows."""
    if isinstance(rows, slice):
        return array[rows].clone()  # a view would be quicker, and would change the data with the batch
    return array.index_select(0, rows)  # half the time of array[rows]


def as_rows(array: Any, label: str, device: torch.device | str | None) -> Tensor:
    """A tensor that has rows; it shares the memory of a numpy array, where torch can."""
    tensor = array if isinstance(array, Tensor) else from_numpy(array, label)
    if tensor.dim() == 0:
        raise InputError(f"InMemory was given a single number as {label}, which has no rows", name="arrays")
    return tensor if device is None else tensor.to(device)


def from_numpy(array: Any, label: str) -> Tensor:
    """The tensor of a numpy array, or of what becomes one without being walked, a column of a data frame say."""
    if not hasattr(array, "__array__"):
        raise InputError(
            f"InMemory was given a {type(array).__name__} as {label}",
            name="arrays",
            cure="give tensors or numpy arrays, one after the other: InMemory(x, y, batch_size=64)",
        )
    found = np.asarray(array)
    if found.dtype.kind not in "biufc":
        raise InputError(
            f"InMemory was given {label} of type {found.dtype}, which is no number",
            name="arrays",
            cure="texts and other objects go through Rows(data, batch_size=64)",
        )
    native = np.require(found, dtype=found.dtype.newbyteorder("="), requirements=["C", "W"])
    return torch.from_numpy(native)


def one_length(arrays: tuple[Tensor, ...]) -> int:
    """How many rows all of them have, on the one device."""
    if not arrays:
        raise InputError("InMemory was given no array", name="arrays", cure="InMemory(x, y, batch_size=64)")
    devices = sorted({str(array.device) for array in arrays})
    if len(devices) > 1:
        raise InputError(
            f"InMemory was given arrays on different devices: {', '.join(devices)}",
            name="arrays",
            cure='say where all of them go: device="cuda"',
        )
    lengths = [len(array) for array in arrays]
    if len(set(lengths)) > 1:
        raise InputError(
            f"InMemory was given arrays of different lengths: {', '.join(map(str, lengths))}",
            name="arrays",
            cure="each needs one row per example",
        )
    return lengths[0]
