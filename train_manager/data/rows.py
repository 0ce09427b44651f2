"""Batches of data that has rows: datasets, data frames, columns of numbers and texts."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Protocol, final

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import default_collate

from train_manager.data.passes import RowBatches
from train_manager.telling.errors import InputError

Collate = Callable[[list[Any]], Any]


@final
class Rows(RowBatches):
    """Batches of any data with ``len(data)`` and ``data[i]``, or with columns.

    >>> from train_manager import Rows
    >>> class Squares:
    ...     def __len__(self):
    ...         return 5
    ...     def __getitem__(self, number):
    ...         return number, number ** 2
    >>> for batch in Rows(Squares(), batch_size=3):
    ...     print(batch)
    [tensor([0, 1, 2]), tensor([0, 1, 4])]
    [tensor([3, 4]), tensor([ 9, 16])]

    Examples are collated as by a DataLoader: numbers and arrays become tensors, and texts become a list. A data frame
    or a dict of columns gives dicts of columns:

    >>> next(iter(Rows({"age": [31, 47], "name": ["Ann", "Bo"]}, batch_size=2)))
    {'age': tensor([31, 47]), 'name': ['Ann', 'Bo']}

    The order of an epoch is a pure function of seed and epoch. ``InMemory`` is faster for arrays of numbers; a
    DataLoader with workers is faster if loading an example takes long.

    Args:
        data: a torch Dataset, a Hugging Face dataset, a data frame, a dict of columns, or any object with
            ``len(data)`` and ``data[0]``, ``data[1]``, ...
        batch_size: the rows of a batch; the last batch may have fewer.
        shuffle: draw a new order for each epoch.
        seed: determines the orders.
        drop_last: drop the last batch if it is not full.
        columns: the columns to keep, if the data or its examples have columns; None keeps all.
        collate: makes a batch of a list of examples; replaces torch's ``default_collate``.

    Raises:
        InputError: the data has no rows; or, while reading, the examples of a batch cannot be collated.
    """

    def __init__(
        self,
        data: Any,
        *,
        batch_size: int,
        shuffle: bool = False,
        seed: int = 0,
        drop_last: bool = False,
        columns: Iterable[str] | None = None,
        collate: Collate | None = None,
    ) -> None:
        names = None if columns is None else [columns] if isinstance(columns, str) else list(columns)
        self._source = source_of(data, names, collate)
        super().__init__(len(self._source), batch_size, shuffle, seed, drop_last)

    @property
    def source(self) -> Any:
        """The source of the batches: columns by name, or the data that examples are fetched from."""
        return self._source.data

    def _batch(self, rows: Tensor | slice) -> Any:
        # Plain ints, as a DataLoader gives them to a dataset.
        numbers = list(range(rows.start, rows.stop, rows.step or 1)) if isinstance(rows, slice) else rows.tolist()
        return self._source.batch(numbers)


class Source(Protocol):
    """An object that makes a batch of row numbers."""

    data: Any

    def __len__(self) -> int: ...

    def batch(self, rows: list[int]) -> Any: ...


def source_of(data: Any, columns: list[str] | None, collate: Collate | None) -> Source:
    """Return a source that reads the data by column if it has columns, else by row.

    Raises:
        InputError: the data has no rows.
    """
    # By attributes and not by class, so that pandas need not be installed.
    is_frame = hasattr(data, "iloc") and hasattr(data, "columns")
    if (is_frame or isinstance(data, Mapping)) and collate is None:
        names = list(data.columns if is_frame else data)
        return Columns({name: data[name] for name in choose_columns(names, columns)})
    rows = getattr(data, "iloc", data)  # in pandas data[i] is a label, data.iloc[i] a row
    if isinstance(data, type | Mapping) or not (hasattr(data, "__len__") and hasattr(rows, "__getitem__")):
        raise InputError(
            f"Rows was given a {type(data).__name__}, which has no rows: it lacks len(data) or data[i]",
            name="data",
            cure="pass an iterable of batches to the TrainManager itself",
        )
    return Examples(rows, len(data), columns, collate or default_collate)


@final
class Columns:
    """Columns of equal length: tensors of numbers, and lists of anything else."""

    def __init__(self, columns: Mapping[str, Any]) -> None:
        self.data = {name: as_column(values) for name, values in columns.items()}
        lengths = {name: len(column) for name, column in self.data.items()}
        if len(set(lengths.values())) > 1:
            shown = ", ".join(f"{name!r}: {length}" for name, length in lengths.items())
            raise InputError(f"Rows was given columns of different lengths: {shown}", name="data")
        self._length = max(lengths.values(), default=0)

    def __len__(self) -> int:
        return self._length

    def batch(self, rows: list[int]) -> dict[str, Any]:
        index = torch.tensor(rows)
        return {
            name: column.index_select(0, index) if isinstance(column, Tensor) else [column[row] for row in rows]
            for name, column in self.data.items()
        }


@final
class Examples:
    """Examples that are fetched one by one, or at once by ``__getitems__``, and collated."""

    def __init__(self, data: Any, length: int, columns: list[str] | None, collate: Collate) -> None:
        self.data = data
        self._length = length
        self._columns = columns
        self._collate = collate

    def __len__(self) -> int:
        return self._length

    def batch(self, rows: list[int]) -> Any:
        # torch and Hugging Face fetch several rows at once by this method, which is faster.
        fetch = getattr(self.data, "__getitems__", None)
        examples = fetch(rows) if callable(fetch) else [self.data[row] for row in rows]
        if self._columns is not None:
            examples = [self._only(example) for example in examples]
        try:
            return with_lists(self._collate(examples))
        except (TypeError, RuntimeError, KeyError) as error:
            raise InputError(
                f"Rows cannot collate {len(rows)} examples: {error!s:.200}",
                name="collate",
                cure="pass collate=..., a function that makes a batch of a list of examples",
            ) from error

    def _only(self, example: Any) -> dict[str, Any]:
        if not isinstance(example, Mapping):
            raise InputError(
                f"Rows was given columns={self._columns!r:.60}, but an example is not a dict: {type(example).__name__}",
                name="columns",
            )
        return {name: example[name] for name in choose_columns(list(example), self._columns)}


def as_column(values: Any) -> Tensor | Sequence[Any]:
    """Return a tensor of numbers, or a list of anything else."""
    if isinstance(values, Tensor):
        return values
    if isinstance(values, list | tuple) and not all(isinstance(value, int | float | complex) for value in values):
        return list(values)
    array = np.asarray(values)
    # A copy, because torch takes neither read-only memory nor negative strides, which slices of pandas have.
    return torch.from_numpy(np.array(array, order="C")) if array.dtype.kind in "biufc" else list(array)


def choose_columns(names: list[Any], columns: list[str] | None) -> list[Any]:
    """Return the columns to keep.

    Raises:
        InputError: one of them is missing.
    """
    missing = [name for name in columns or () if name not in names]
    if missing:
        raise InputError(
            f"Rows has no column {missing[0]!r}: the columns are {', '.join(map(repr, names))}", name="columns"
        )
    return names if columns is None else columns


def with_lists(batch: Any) -> Any:
    """Return the batch with its texts in lists, of which torch makes tuples if examples are tuples."""
    if isinstance(batch, tuple) and all(isinstance(entry, str) for entry in batch):
        return list(batch)
    if type(batch) is list:  # not isinstance: a subclass may be a container of the user's own
        return [with_lists(entry) for entry in batch]
    return batch
