"""The rows of a batch of ``train_on_batch`` that one of several processes trains on."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, MutableMapping
from typing import Any, Final

from torch import Tensor

from train_manager.data.batch import unpack
from train_manager.data.shared_data import gives_own_batches
from train_manager.data.shares import ALONE, Place, Share, count_of_rank, rows_of_rank
from train_manager.loop.outputs import count_listed, count_rows
from train_manager.telling.errors import InputError

CURE: Final = "give the rows of this process as Share(batch, examples, of), of train_manager.data.shares"


def share_of_batch(
    batch: Any, place: Place, train_data: object, spreads: Callable[[Any], bool]
) -> tuple[Any, int | None]:
    """Return what this process trains on of a batch, and how many examples it is; None if the process trains alone.

    A ``Share`` is taken as it is. Any other batch was given to each process as a whole, and is cut by rows:

    >>> import torch
    >>> share_of_batch((torch.arange(5), ["a", "b", "c", "d", "e"]), Place(1, 2), None, lambda inputs: False)
    ((tensor([1, 3]), ['b', 'd']), 2)

    Args:
        batch: the batch.
        place: the place of the process.
        train_data: the training data, which the batch may come from.
        spreads: returns whether the model takes inputs as several arguments.

    Raises:
        InputError: the entries of the batch do not have equally many rows, or are lists of examples; or the training
            data give each process batches of its own.
    """
    if isinstance(batch, Share):
        return batch.batch, batch.examples
    if place is ALONE:
        return batch, None
    if gives_own_batches(train_data):
        name = type(train_data).__name__
        what = f"train_on_batch was given a batch, but train_data ({name}) gives each process batches of its own"
        raise InputError(what, name="batch", asked_by="Distributed", cure=CURE)
    unpacked = unpack(batch)
    if listed := count_listed(unpacked, spreads):
        raise _uncut(f"its inputs and targets are lists of {listed} examples")
    size = count_rows(batch, spreads, unpacked)
    whole = slice(0, size)
    return _cut(batch, rows_of_rank(whole, place), size), count_of_rank(whole, place)


def _cut(value: Any, rows: slice, size: int) -> Any:
    if isinstance(value, Tensor) or type(value).__module__ == "numpy":
        return value[rows] if value.shape[:1] == (size,) else _refuse(value, size)
    if isinstance(value, MutableMapping):
        cut = copy.copy(value)  # not type(value)(...): a subclass of dict may take other arguments
        cut.update({key: _cut(one, rows, size) for key, one in value.items()})
        return cut
    if isinstance(value, Mapping):
        return {key: _cut(one, rows, size) for key, one in value.items()}
    if isinstance(value, list | tuple) and not hasattr(value, "to"):  # as PackedSequence has it
        if value and not any(isinstance(one, Mapping | list | tuple) or hasattr(one, "shape") for one in value):
            return value[rows] if len(value) == size else _refuse(value, size)  # such as a text for each example
        entries = [_cut(one, rows, size) for one in value]
        return type(value)(*entries) if hasattr(value, "_fields") else type(value)(entries)
    return value if value is None or isinstance(value, str | bool | int | float) else _refuse(value, size)


def _refuse(value: Any, size: int) -> Any:
    shape = getattr(value, "shape", None)
    kind = f"a {type(value).__name__}" + ("" if shape is None else f" of shape {tuple(shape)}")
    raise _uncut(f"it has {size} rows, and {kind}")


def _uncut(why: str) -> InputError:
    what = f"train_on_batch cannot cut this batch for several processes: {why}"
    return InputError(what, name="batch", asked_by="Distributed", cure=CURE)
