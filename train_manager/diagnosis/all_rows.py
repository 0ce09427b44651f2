"""All rows of data whose tensors are in memory, without a pass over their batches; and how many rows data have."""

from __future__ import annotations

from typing import Any, Final

from torch import Tensor
from torch.utils.data import (
    DataLoader,
    Dataset,
    RandomSampler,
    SequentialSampler,
    Subset,
    TensorDataset,
    default_collate,
)

from train_manager.data.batch import tensors_in, without_source
from train_manager.data.in_memory import InMemory
from train_manager.data.row_batches import RowBatches
from train_manager.data.seeded_dataset import SeededDataset
from train_manager.data.seeded_sampler import SeededSampler
from train_manager.diagnosis.batch_leaves import leaves_of, put_together

SIZE: Final = 1024
"""Rows that are looked at together."""

READ_ALL: Final = (SequentialSampler, RandomSampler, SeededSampler)


def all_rows(data: Any) -> list[Any] | None:
    """Return all rows in the order of the data, in batches that share their memory; None if they are not in memory.

    >>> import torch
    >>> data = DataLoader(TensorDataset(torch.rand(1500, 2), torch.rand(1500)), batch_size=4, shuffle=True)
    >>> [len(inputs) for inputs, targets in all_rows(data)]
    [1024, 476]
    """
    if isinstance(data, list | tuple):
        return list(data)
    if isinstance(data, InMemory):
        source = data.source
        return _cut(source[0] if isinstance(source, tuple) and len(source) == 1 else source)
    if isinstance(data, DataLoader) and type(data.sampler) in READ_ALL and data.collate_fn is default_collate:
        tensors = None if data.batch_size is None else _tensors(data.dataset)
        return None if tensors is None else _cut(tensors)
    return None


def count_of(data: Any) -> int | None:
    """Return how many rows data have; None if it is not known."""
    if isinstance(data, RowBatches):
        return data.num_examples
    if isinstance(data, list | tuple):
        first = [next((one for one in tensors_in(without_source(batch)) if one.dim()), ()) for batch in data]
        return sum(map(len, first))
    try:
        if isinstance(data, DataLoader) and data.batch_size is not None:
            return len(data.dataset if type(data.sampler) in READ_ALL else data.sampler)  # type: ignore[arg-type]
    except TypeError:  # a stream, or a sampler without a length
        pass
    return None


def _tensors(dataset: Dataset[Any]) -> list[Tensor] | None:
    """Return the tensors of a dataset, as a batch of all its examples."""
    if type(dataset) is SeededDataset:
        return _tensors(dataset.dataset)
    if type(dataset) is Subset:
        whole = _tensors(dataset.dataset)
        return None if whole is None else [one[list(dataset.indices)] for one in whole]
    return list(dataset.tensors) if type(dataset) is TensorDataset else None


def _cut(whole: Any) -> list[Any]:
    leaves = dict(leaves_of(whole))
    count = len(next(iter(leaves.values())))
    return [
        put_together(whole, {path: one[start : start + SIZE] for path, one in leaves.items()})
        for start in range(0, count, SIZE)
    ]
