"""Whether a training can go on in the middle of a pass: which data know their position, or repeat their order."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from torch.utils.data import BatchSampler, DataLoader, IterableDataset, SequentialSampler

from train_manager.model.modules import has_state


def repeats_its_order(data: object) -> bool:
    """Return whether every pass over an epoch is sure to give the same order, so that batches can be counted off.

    >>> repeats_its_order(["first", "second"])
    True

    A list does; and so does a DataLoader that does not shuffle, or whose sampler draws its order from the epoch alone
    (it has ``set_epoch``, as torch's ``DistributedSampler``).
    """
    if isinstance(data, list | tuple):
        return True
    if not isinstance(data, DataLoader) or isinstance(data.dataset, IterableDataset):
        return callable(getattr(data, "set_epoch", None))
    if data.batch_sampler is not None and type(data.batch_sampler) is not BatchSampler:
        return callable(getattr(data.batch_sampler, "set_epoch", None))
    return isinstance(data.sampler, SequentialSampler) or callable(getattr(data.sampler, "set_epoch", None))


def shuffles_unseen(data: Any) -> bool:
    """Return whether the data are a DataLoader whose order in an epoch cannot be had again, or are made of such."""
    if isinstance(data, DataLoader):
        return not has_state(data) and not repeats_its_order(data)
    inner = getattr(data, "data", None)  # of Endless; of Interleaved and Together by name; and of these in one another
    return any((isinstance(one, DataLoader) or has_state(one)) and shuffles_unseen(one) for one in _several(inner))


def _several(inner: object) -> Iterable[object]:
    return inner.values() if isinstance(inner, dict) else (inner,)
