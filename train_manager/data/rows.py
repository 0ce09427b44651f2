"""Batches of data that gives its examples by row: datasets, data frames, columns of numbers and texts."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Protocol, final

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import default_collate

from train_manager.core.errors import InputError
from train_manager.data.row_batches import Passes

Collate = Callable[[list[Any]], Any]


@final
class Rows(Passes):
    """Batches of what has a length and gives ``data[i]``, or of what has columns.

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

    Examples are put together as by a DataLoader: numbers and arrays become tensors, texts a list. A data frame, or a
    dict of columns, gives dicts of columns:

    >>> next(iter(Rows({"age": [31, 47], "name": ["Ann", "Bo"]}, batch_size=2)))
    {'age': tensor([31, 47]), 'name': ['Ann', 'Bo']}

    The order of an epoch is a function of seed and epoch, as that of ``InMemory``, which is quicker where the data is
    arrays of numbers. Where making an example takes long, use a DataLoader with workers.

    Args:
        data: a torch Dataset, a Hugging Face dataset, a data frame, a dict of columns, or any object with a length
            and ``data[0]``, ``data[1]``, ...
        batch_size: how many rows a batch has; the last one may have fewer.
        shuffle: a new order in each epoch, else always that of the rows.
        seed: what the orders are made of.
        drop_last: leave a last batch out that is not full.
        columns: which columns to take, where an example or the data has columns; None takes all.
        collate: puts a list of examples together, in place of torch's ``default_collate``.

    Raises:
        InputError: the data has no rows; or, when a batch is made, its examples cannot be put together.
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

    def _batch(self, rows: Tensor | slice) -> Any:
        numbers = list(range(rows.start, rows.stop)) if isinstance(rows, slice) else rows.tolist()
        return self._source.batch(numbers)


class Source(Protocol):
    """What makes a batch of row numbers."""

    def __len__(self) -> int: ...

    def batch(self, rows: list[int]) -> Any: ...


def source_of(data: Any, columns: list[str] | None, collate: Collate | None) -> Source:
    """The data by column where it has columns, else by row."""
    is_frame = hasattr(data, "iloc") and hasattr(data, "columns")
    if (is_frame or isinstance(data, Mapping)) and collate is None:
        names = list(data.columns if is_frame else data)
        return Columns({name: data[name] for name in chosen(names, columns)})
    rows = getattr(data, "iloc", data)  # data[i] of a data frame or of one of its columns is by label
    if isinstance(data, type | Mapping) or not (hasattr(data, "__len__") and hasattr(rows, "__getitem__")):
        raise InputError(
            f"Rows was given a {type(data).__name__}, which has no rows: no len(data) and data[i]",
            name="data",
            cure="an iterable of batches is given to a TrainManager as it is",
        )
    return Examples(rows, len(data), columns, collate or default_collate)


@final
class Columns:
    """Columns of one length: tensors, and lists of what is no number."""

    def __init__(self, columns: Mapping[str, Any]) -> None:
        self._columns = {name: as_column(values) for name, values in columns.items()}
        lengths = {name: len(column) for name, column in self._columns.items()}
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
            for name, column in self._columns.items()
        }


@final
class Examples:
    """Examples one by one, put together."""

    def __init__(self, data: Any, length: int, columns: list[str] | None, collate: Collate) -> None:
        self._data = data
        self._length = length
        self._columns = columns
        self._collate = collate

    def __len__(self) -> int:
        return self._length

    def batch(self, rows: list[int]) -> Any:
        fetch = getattr(self._data, "__getitems__", None)
        examples = fetch(rows) if callable(fetch) else [self._data[row] for row in rows]
        if self._columns is not None:
            examples = [self._only(example) for example in examples]
        try:
            return with_lists(self._collate(examples))
        except (TypeError, RuntimeError, KeyError) as error:
            raise InputError(
                f"Rows could not put {len(rows)} examples into one batch: {error!s:.200}",
                name="collate",
                cure="pass collate=..., a function that makes a batch of a list of examples",
            ) from error

    def _only(self, example: Any) -> dict[str, Any]:
        if not isinstance(example, Mapping):
            raise InputError(
                f"Rows was given columns={self._columns!r:.60}, but an example is a {type(example).__name__}, no dict",
                name="columns",
            )
        return {name: example[name] for name in chosen(list(example), self._columns)}


def as_column(values: Any) -> Tensor | Sequence[Any]:
    """A tensor of numbers; a list of anything else."""
    if isinstance(values, Tensor):
        return values
    if isinstance(values, list | tuple) and not all(isinstance(value, int | float | complex) for value in values):
        return list(values)
    array = np.asarray(values)
    # A copy: it belongs to the batches alone, and torch takes no memory that is read-only or runs backwards.
    return torch.from_numpy(np.array(array, order="C")) if array.dtype.kind in "biufc" else list(array)


def chosen(names: list[Any], columns: list[str] | None) -> list[Any]:
    """The columns that are to be taken.

    Raises:
        InputError: one of them is not there.
    """
    missing = [name for name in columns or () if name not in names]
    if missing:
        raise InputError(
            f"Rows was asked for column {missing[0]!r}, and there are {', '.join(map(repr, names))}", name="columns"
        )
    return names if columns is None else columns


def with_lists(batch: Any) -> Any:
    """The batch, its texts in lists: torch makes them a tuple where examples are tuples."""
    if isinstance(batch, tuple) and all(isinstance(part, str) for part in batch):
        return list(batch)
    if type(batch) is list:
        return [with_lists(part) for part in batch]
    return batch
