"""Checks whether a training can resume in the middle of a pass: do data know their position, or repeat their order?"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final, NamedTuple

from torch.utils.data import (
    BatchSampler,
    DataLoader,
    IterableDataset,
    RandomSampler,
    SequentialSampler,
    SubsetRandomSampler,
    WeightedRandomSampler,
)

from train_manager.data.orders import draws
from train_manager.data.read_again import stateful
from train_manager.data.readable import objects_in
from train_manager.model.modules import has_state

DRAW_AS_THEY_BEGIN: Final = (SequentialSampler, RandomSampler, SubsetRandomSampler, WeightedRandomSampler, BatchSampler)
"""Samplers whose order depends on nothing but the random state that their pass begins with."""


class Doubt(NamedTuple):
    """Why a training that resumes may get other batches."""

    what: str
    cure: str
    is_at_ends: bool = False  # whether it concerns checkpoints at the end of an epoch too


def repeats_its_order(data: object) -> bool:
    """Return whether every pass that begins alike is sure to give the same batches, so that they can be counted off.

    >>> repeats_its_order(["first", "second"])
    True

    A list does; and so does a DataLoader with torch's samplers, or with a sampler that draws its order from the epoch
    alone (it has ``set_epoch``, as torch's ``DistributedSampler``).
    """
    if isinstance(data, list | tuple):
        return True
    if not isinstance(data, DataLoader):
        return _has_epochs(data)
    if not getattr(data, "in_order", True):  # batches come as workers finish them
        return False
    # A stream decides its order itself: it is known only if it is a function of the epoch.
    if isinstance(data.dataset, IterableDataset):
        return any(map(_has_epochs, objects_in(data)))
    samplers = [one for one in (data.batch_sampler, data.sampler) if one is not None]
    # `type` and not isinstance: a subclass of RandomSampler may draw from elsewhere.
    return _has_epochs(samplers[0]) or all(type(one) in DRAW_AS_THEY_BEGIN or _has_epochs(one) for one in samplers)


def doubts(data: Any) -> Iterator[Doubt]:
    """Yield why a training on a DataLoader, or on data made of such, may not resume as if it had never ended."""
    if not isinstance(data, DataLoader):
        inner = getattr(data, "data", None)  # the data in Endless; in Interleaved and Together a dict of sets
        for one in inner.values() if isinstance(inner, dict) else (inner,):
            if isinstance(one, DataLoader) or has_state(one):
                yield from doubts(one)
    elif not has_state(data):
        if data.persistent_workers and draws(data.dataset):
            what = (
                "keeps its workers, whose random states are in no checkpoint: from any checkpoint, also at the end of "
            )
            cure = "persistent_workers=False resumes exactly"
            yield Doubt(f"{what}an epoch, its dataset draws otherwise", cure, is_at_ends=True)
        if not repeats_its_order(data) and stateful(data) is None:
            what = (
                "does not tell its position: from a checkpoint within an epoch, also that of a signal or a time limit,"
            )
            yield Doubt(f"{what} it must give the same batches again", cure_of_order(data))


def cure_of_order(data: object) -> str:
    """Return what lets data resume exactly that are neither a list nor torch's own."""
    if not isinstance(data, DataLoader):
        return "give it state_dict() and load_state_dict(), or set_epoch() if its order depends on the epoch alone"
    if not getattr(data, "in_order", True):
        return "leave out in_order=False"
    if isinstance(data.dataset, IterableDataset):
        where = "the loader, since workers read its dataset," if data.num_workers else "its dataset"
        return f"give {where} state_dict() and load_state_dict()"
    return "give its sampler set_epoch(), if its order depends on the epoch alone"


def _has_epochs(item: object) -> bool:
    return callable(getattr(item, "set_epoch", None))
