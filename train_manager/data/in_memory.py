"""Batches of arrays in memory, cut by index: no workers, and no examples fetched one by one and collated."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from typing import Any, final

import numpy as np
import torch
from torch import Tensor

from train_manager.data.passes import PassPosition, RowBatches
from train_manager.telling.errors import InputError


@final
class InMemory(RowBatches):
    """Batches of the rows of tensors or numpy arrays, on the device of the arrays.

    >>> import torch
    >>> from train_manager import InMemory
    >>> x, y = torch.rand(10, 3), torch.arange(10)
    >>> data = InMemory(x, y, batch_size=4, shuffle=True, seed=0)
    >>> len(data), [len(inputs) for inputs, targets in data]
    (3, [4, 4, 2])

    The order of an epoch is a pure function of seed and epoch. Each ``iter()`` is the next epoch;
    ``data.set_epoch(3)`` makes the next one epoch 3, counted from 0. A TrainManager calls it itself.

    A batch is a copy: changing it in place does not change the data. One array gives tensors, several arrays give
    tuples, and a dict of arrays gives dicts:

    >>> next(iter(InMemory({"inputs": x, "targets": y}, batch_size=4)))["targets"]
    tensor([0, 1, 2, 3])

    ``transform`` is called with each batch, as an augmentation of all its rows at once:

    >>> def noisy(batch):
    ...     inputs, targets = batch
    ...     return inputs + 0.1 * torch.randn_like(inputs), targets
    >>> data = InMemory(x, y, batch_size=4, transform=noisy)

    It draws from the random states of the training, which checkpoints hold, and no batch is read ahead: a training
    that resumes draws what it would have drawn without the stop.

    Args:
        arrays: tensors or numpy arrays of equal length; or one dict of them.
        batch_size: the rows of a batch; the last batch may have fewer.
        shuffle: draw a new order for each epoch.
        seed: determines the orders.
        drop_last: drop the last batch if it is not full.
        device: move all arrays there, once; for data that fits on the GPU beside the model.
        transform: a function of a batch that returns the batch to give; called as the batch is read.
        copy: False gives a part of the arrays themselves where rows come in their own order, which saves the time of
            the copy. Then nothing may change a batch in place: it would change the data.

    Raises:
        InputError: the arrays differ in length, are not numeric, or make no batch; ``transform`` is not a function; or,
            while reading, it has returned None, or an operation of torch has changed a batch in place, with
            ``copy=False``.
    """

    def __init__(
        self,
        *arrays: Any,
        batch_size: int,
        shuffle: bool = False,
        seed: int = 0,
        drop_last: bool = False,
        device: torch.device | str | None = None,
        transform: Callable[[Any], Any] | None = None,
        copy: bool = True,
    ) -> None:
        if transform is not None and not callable(transform):
            what = f"the transform of InMemory must be a function of a batch, but is a {type(transform).__name__}"
            raise InputError(what, name="transform", cure="transform=lambda batch: ...")
        self._transform, self._copies = transform, copy
        named = arrays[0] if len(arrays) == 1 and isinstance(arrays[0], Mapping) else None
        self._names = None if named is None else tuple(named)  # None: batches are tensors or tuples, not dicts
        labelled: Iterable[tuple[object, Any]] = enumerate(arrays, start=1) if named is None else named.items()
        self._arrays = tuple(as_rows(array, f"array {label!r}", device) for label, array in labelled)
        super().__init__(common_length(self._arrays), batch_size, shuffle, seed, drop_last)

    @property
    def source(self) -> tuple[Tensor, ...] | dict[str, Tensor]:
        """The arrays that the batches are cut from; not copies."""
        return self._arrays if self._names is None else dict(zip(self._names, self._arrays, strict=True))

    def described(self) -> str:
        """Return its rows and batches, with the shapes and dtypes of its arrays."""
        arrays = (f"{str(one.dtype).removeprefix('torch.')} {[*one.shape]}" for one in self._arrays)
        named = arrays if self._names is None else map("{} {}".format, self._names, arrays)
        return f"{self!r} of {', '.join(named)}"

    @property
    def _device(self) -> torch.device:
        return self._arrays[0].device

    def _reading(self, position: PassPosition) -> AbstractContextManager[Callable[[Tensor | slice], Any]]:
        return super()._reading(position) if self._copies else reading_unchanged(self._batch, self._arrays)

    def _batch(self, rows: Tensor | slice) -> Any:
        parts = [take_rows(array, rows, copies=self._copies) for array in self._arrays]
        if self._names is not None:
            batch: Any = dict(zip(self._names, parts, strict=True))
        else:
            batch = parts[0] if len(parts) == 1 else tuple(parts)
        return batch if self._transform is None else transformed(batch, self._transform)


def take_rows(array: Tensor, rows: Tensor | slice, *, copies: bool) -> Tensor:
    """Return some rows: a copy, unless they are a slice of which none is asked for."""
    if isinstance(rows, slice):
        # A copy: changing a batch in place must not change the data.
        return array[rows].clone() if copies else array[rows]
    return array.index_select(0, rows)  # a copy too; takes half the time of array[rows]


def transformed(batch: Any, transform: Callable[[Any], Any]) -> Any:
    """Return what a transform makes of a batch.

    Raises:
        InputError: it has returned None.
    """
    found = transform(batch)
    if found is None:  # else the error would come from the model, which knows nothing of the transform
        name = getattr(transform, "__name__", type(transform).__name__)
        what = f"the transform of InMemory, {name}, returned None in place of a batch"
        raise InputError(what, name="transform", cure="return the batch, also if it was changed in place")
    return found


@contextmanager
def reading_unchanged(
    read: Callable[[Tensor | slice], Any], arrays: tuple[Tensor, ...]
) -> Iterator[Callable[[Tensor | slice], Any]]:
    """Give a function that reads batches which are parts of the arrays, and refuses to go on after a change of one.

    Raises:
        InputError: torch has counted a change in place of an array since the pass began.
    """
    before = changes_of(arrays)

    def require_unchanged() -> None:
        if changes_of(arrays) != before:
            what = "a batch of InMemory was changed in place, and with copy=False it is a part of the data"
            cure = "leave out copy=False, and give the data anew: what was changed stays changed"
            raise InputError(what, name="copy", cure=cure)

    def checked(rows: Tensor | slice) -> Any:
        require_unchanged()
        return read(rows)

    yield checked
    require_unchanged()  # after the last batch


def changes_of(arrays: tuple[Tensor, ...]) -> list[int]:
    """Return how often torch has changed each array in place, or a part of it; an inference tensor has no count."""
    return [0 if array.is_inference() else array._version for array in arrays]


def as_rows(array: Any, label: str, device: torch.device | str | None) -> Tensor:
    """Return a tensor that has rows. It shares the memory of a numpy array if torch can."""
    tensor = array if isinstance(array, Tensor) else from_numpy(array, label)
    # len() of a single number would be an error without a cure.
    if tensor.dim() == 0:
        raise InputError(f"InMemory was given a single number as {label}, which has no rows", name="arrays")
    return tensor if device is None else tensor.to(device)


def from_numpy(array: Any, label: str) -> Tensor:
    """Return the tensor of a numpy array, or of an object that converts to one at once, as a column does."""
    if not hasattr(array, "__array__"):
        raise InputError(
            f"InMemory was given a {type(array).__name__} as {label}",
            name="arrays",
            cure="give tensors or numpy arrays, one after the other: InMemory(x, y, batch_size=64)",
        )
    values = np.asarray(array)
    if values.dtype.kind not in "biufc":
        raise InputError(
            f"InMemory was given {label} of type {values.dtype}, which is not numeric",
            name="arrays",
            cure="use Rows(data, batch_size=64) for texts and other objects",
        )
    # torch takes neither a foreign byte order nor negative strides, and warns of read-only memory.
    native = np.require(values, dtype=values.dtype.newbyteorder("="), requirements=["C", "W"])
    return torch.from_numpy(native)


def common_length(arrays: tuple[Tensor, ...]) -> int:
    """Return the number of rows of all arrays.

    Raises:
        InputError: there is no array, or they differ in their devices or lengths.
    """
    if not arrays:
        raise InputError("InMemory was given no array", name="arrays", cure="InMemory(x, y, batch_size=64)")
    devices = sorted({str(array.device) for array in arrays})
    if len(devices) > 1:
        raise InputError(
            f"InMemory was given arrays on different devices: {', '.join(devices)}",
            name="arrays",
            cure='move all of them: device="cuda"',
        )
    lengths = [len(array) for array in arrays]
    if len(set(lengths)) > 1:
        raise InputError(
            f"InMemory was given arrays of different lengths: {', '.join(map(str, lengths))}",
            name="arrays",
            cure="give one row per example in each array",
        )
    return lengths[0]
