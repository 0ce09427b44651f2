"""A pass over data that the training may be in the middle of, so that evaluating more or less often changes nothing.

``RowBatches`` and the classes of several sets know what to put back, by a method ``left_as_found``. A DataLoader does
not, so that its generators and its workers are looked after here.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from typing import Any
from weakref import WeakKeyDictionary

from torch import Generator
from torch.utils.data import DataLoader

from train_manager.data.readable import objects_in


@contextmanager
def one_pass(data: Iterable[Any]) -> Iterator[Iterator[Any]]:
    """Give the batches of one whole pass; at the end of the ``with`` block the data are where they were before.

    >>> import torch
    >>> from train_manager import InMemory
    >>> data = InMemory(torch.arange(4), batch_size=2, shuffle=True)
    >>> training = iter(data)
    >>> first = next(training)
    >>> with one_pass(data) as batches:
    ...     len(list(batches))
    2
    >>> data.state_dict()["batches"], len(list(training))
    (1, 1)

    Random states that do not belong to the data, such as torch's own, are the caller's to put back.

    Args:
        data: an iterable of batches, perhaps with a method ``left_as_found`` that returns a context manager.
    """
    with left_as_found(data):
        yield iter(data)


def left_as_found(data: object) -> AbstractContextManager[None]:
    """Return a context in which passes over the data begin at their start, and which puts back what they moved."""
    if callable(method := getattr(data, "left_as_found", None)):
        kept: AbstractContextManager[None] = method()
        return kept
    return _loader_as_found(data) if isinstance(data, DataLoader) else nullcontext()


@contextmanager
def _loader_as_found(loader: DataLoader[Any]) -> Iterator[None]:
    with ExitStack() as stack:
        for item in objects_in(loader):
            # A generator of the loader, of a sampler or of a dataset,
            # from which the next pass of the training draws its order.
            if isinstance(generator := getattr(item, "generator", None), Generator):
                stack.callback(generator.set_state, generator.get_state())
        if loader.persistent_workers:
            stack.enter_context(_other_workers(loader))
        yield


# The iterator of each loader whose workers read evaluations, for as long as the loader lives. Weak keys suffice,
# because an iterator does not refer to its loader.
_workers: WeakKeyDictionary[DataLoader[Any], Any] = WeakKeyDictionary()


@contextmanager
def _other_workers(loader: DataLoader[Any]) -> Iterator[None]:
    """Give a loader with persistent workers a second set of workers for a ``with`` block."""
    # A loader has one iterator, in `_iterator` (torch 2.13), and iter(loader) winds it back: a training in the middle
    # of an epoch would lose batches without an error, and the random states of its workers would move.
    training, loader._iterator = loader._iterator, _workers.pop(loader, None)
    try:
        yield
        _workers[loader] = loader._iterator  # not after an error, which may have broken them
    finally:
        loader._iterator = training
