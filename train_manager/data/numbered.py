"""Data that number their examples, and the examples by their numbers."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import Any

import torch

from train_manager.data.endless import Endless
from train_manager.data.interleaved import Interleaved
from train_manager.data.randomness import preserved_random_state
from train_manager.data.row_batches import RowBatches
from train_manager.data.seeded_loader import SeededDataLoader
from train_manager.data.together import Together


def numbers_examples(data: Any) -> bool:
    """Return whether data give each example of a batch a number; ``Together`` gives several, one for each set.

    >>> from train_manager.data.in_memory import InMemory
    >>> numbers_examples(Endless(InMemory(torch.ones(4), batch_size=2))), numbers_examples([torch.ones(2)])
    (True, False)
    """
    if isinstance(data, Endless):
        return numbers_examples(data.data)
    if isinstance(data, Interleaved):
        return all(map(numbers_examples, data.data.values()))
    if isinstance(data, Together):
        return False
    # Not by hasattr: before the first batch it is missing.
    return inspect.getattr_static(data, "example_index", None) is not None


def examples_at(data: Any, numbers: Sequence[int], source: str = "train") -> Any:
    """Return a batch of the examples of these numbers; None if the data cannot give them.

    >>> from train_manager.data.in_memory import InMemory
    >>> examples_at(InMemory(torch.arange(9), batch_size=2), [7, 3])
    tensor([7, 3])

    Args:
        data: what is trained on.
        numbers: of the examples.
        source: the name of the set, where there are several.
    """
    if isinstance(data, Endless):
        return examples_at(data.data, numbers, source)
    if isinstance(data, Interleaved):
        return examples_at(data.data.get(source), numbers, source)
    with preserved_random_state():
        if isinstance(data, RowBatches):
            return data._batch(torch.tensor(numbers, device=data._device))
        if isinstance(data, SeededDataLoader) and callable(data.collate_fn):
            return data.collate_fn([data.dataset[number] for number in numbers])
    return None
