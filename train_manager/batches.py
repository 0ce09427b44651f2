"""Walking over data: batches one by one, which of them is the last, and onto which device they go."""

from __future__ import annotations

import contextlib
import copy
import warnings
from collections.abc import Generator, Iterable, Iterator, Mapping, MutableMapping, Sized
from itertools import islice
from types import GeneratorType
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import Dataset, IterableDataset

from train_manager.errors import InputError


def walk(data: Iterable[Any], name: str) -> Iterator[tuple[Any, bool]]:
    """The batches of one pass, each with whether it is the last.

    Where ``len(data)`` is known nothing is read ahead: a batch is made when its turn comes, so that data which draws
    random numbers draws them in the same order as in a plain ``for`` loop. Elsewhere one batch is read ahead.
    """
    length = length_of(data)
    return _count_down(data, length, name) if length is not None else _look_ahead(data)


def walk_steps(stream: Iterator[Any], steps: int) -> Iterator[tuple[Any, bool]]:
    """The next ``steps`` batches of a stream, each with whether it is the last of them."""
    step = 0
    for step, batch in enumerate(islice(stream, steps), start=1):
        yield batch, step == steps
    if 0 < step < steps:
        warnings.warn(
            f"train_data ended after {step} of {steps} batches of an epoch, so `last_batch` was wrong",
            RuntimeWarning,
            stacklevel=2,
        )


def unending(data: Iterable[Any]) -> Generator[Any, None, None]:
    """The batches of pass after pass; ends only where a pass gives none."""
    gave_any = True
    while gave_any:
        gave_any = False
        iterator = iter(data)
        with contextlib.suppress(StopIteration):
            while True:
                yield next(iterator)  # under no name here, which would keep it alive until the next epoch
                gave_any = True


def length_of(data: object) -> int | None:
    """How many batches, where that can be told without reading them."""
    try:
        return len(data) if isinstance(data, Sized) else None
    except TypeError:  # a DataLoader over a stream has a __len__ that cannot answer
        return None


def is_read_once(data: object) -> bool:
    """Whether a second pass over it would be empty: a generator, or what ``iter``, ``zip`` or ``map`` return."""
    known = type(data).__module__ in ("builtins", "itertools", "torch.utils.data.dataloader")
    return isinstance(data, GeneratorType) or (known and isinstance(data, Iterator))


def refuse_unusable(data: object, name: str) -> None:
    """Refuse what is not an iterable of batches.

    Raises:
        InputError: naming what it is and what to give.
    """
    if isinstance(data, Tensor):
        what, cure = (
            "a tensor",
            "give an iterable of batches, such as DataLoader(TensorDataset(x, y), batch_size=64)",
        )
    elif isinstance(data, Dataset) and not isinstance(data, IterableDataset):
        what, cure = (
            "a Dataset of single examples",
            "wrap it: DataLoader(dataset, batch_size=64, shuffle=True)",
        )
    elif isinstance(data, Mapping):
        what, cure = "a dict, whose keys would be the batches", "give the iterable of batches itself"
    elif not isinstance(data, Iterable):
        what, cure = f"a {type(data).__name__}, which cannot be iterated", "give an iterable of batches"
    else:
        return
    raise InputError(f"{name} is {what}", name=name, cure=cure)


def no_batch(data: object, name: str, when: str) -> InputError:
    """The error for a pass that gave no batch."""
    if is_read_once(data):
        cure = f"a {type(data).__name__} can be read once; give a list, a DataLoader, or a class with __iter__"
    else:
        cure = "it needs at least one batch; with drop_last, are there fewer examples than one batch?"
    return InputError(f"{name} gave no batch {when}", name=name, cure=cure)


def to_device(batch: Any, device: torch.device) -> Any:
    """The batch with every tensor in it on ``device``, without waiting for the copies; other things as they are."""
    if isinstance(batch, Tensor):
        return batch.to(device, non_blocking=True)
    if isinstance(batch, MutableMapping):
        moved = copy.copy(batch)  # whose class may have a constructor of its own
        moved.update({key: to_device(value, device) for key, value in batch.items()})
        return moved
    if isinstance(batch, Mapping):
        return {key: to_device(value, device) for key, value in batch.items()}
    if callable(getattr(batch, "to", None)):  # a graph, an encoding, a packed sequence
        return batch.to(device)
    if isinstance(batch, tuple) and hasattr(batch, "_fields"):
        return type(batch)(*(to_device(value, device) for value in batch))
    if isinstance(batch, list | tuple):
        return type(batch)(to_device(value, device) for value in batch)
    return batch


def tensors_in(value: Any) -> Iterator[Tensor]:
    """Every tensor in nested dicts, lists and tuples, in their order."""
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, Mapping):
        for inner in value.values():
            yield from tensors_in(inner)
    elif isinstance(value, list | tuple):
        for inner in value:
            yield from tensors_in(inner)


_END: Any = object()


def _count_down(data: Iterable[Any], length: int, name: str) -> Iterator[tuple[Any, bool]]:
    given = 0
    for given, batch in enumerate(data, start=1):
        yield batch, given == length
    if given not in (0, length):  # that it gave none is an error of its own
        warnings.warn(
            f"{name} says len() = {length} but gave {given} batches, so `last_batch` was wrong",
            RuntimeWarning,
            stacklevel=2,
        )


def _look_ahead(data: Iterable[Any]) -> Iterator[tuple[Any, bool]]:
    iterator = iter(data)
    batch = next(iterator, _END)
    while batch is not _END:
        following = next(iterator, _END)
        yield batch, following is _END
        batch = following
