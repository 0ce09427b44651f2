"""Walking over data: batches one by one, which of them is the last, and onto which device they go."""

from __future__ import annotations

import contextlib
import copy
import warnings
from collections.abc import Generator, Iterable, Iterator, Mapping, MutableMapping, Sized
from itertools import count, cycle, islice
from types import GeneratorType
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Dataset, IterableDataset

from train_manager.core.errors import InputError


class FromSource(NamedTuple):
    """A batch that says which set of data it comes from; the loop unpacks it."""

    datasource_name: str
    batch: Any


def walk(data: Iterable[Any], name: str, done: int = 0) -> Iterator[tuple[Any, bool]]:
    """The batches of one pass, each with whether it is the last; then the data is reset, where it has a ``reset``.

    ``done`` batches of the pass have been given before: a pass of data that knows its place goes on from there.

    Where ``len(data)`` is known nothing is read ahead: a batch is made when its turn comes, so that data which draws
    random numbers draws them in the same order as in a plain ``for`` loop. Elsewhere one batch is read ahead.
    """
    length = length_of(data)
    return _count_down(data, length, name, done) if length is not None else _look_ahead(data)


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
        reset(data)


def begin_epoch(data: object, epoch: int) -> None:
    """Say to the data, or to the sampler or dataset of a loader, which epoch comes; where it wants to know."""
    parts = (data, *(getattr(data, name, None) for name in ("sampler", "batch_sampler", "dataset")))
    for part in parts:
        if callable(set_epoch := getattr(part, "set_epoch", None)):
            set_epoch(epoch)


def reset(data: object) -> None:
    """Let the data go back to its start, where it has a ``reset``."""
    if callable(method := getattr(data, "reset", None)):
        method()


def is_endless(data: object) -> bool:
    """Whether it is known that a pass never ends: the data, or the dataset of a loader, says ``endless = True``."""
    declared = any(getattr(part, "endless", None) is True for part in (data, getattr(data, "dataset", None)))
    return declared or isinstance(data, count | cycle)


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
    if isinstance(data, Tensor | np.ndarray):
        what = "a tensor" if isinstance(data, Tensor) else "an array"
        cure = "give an iterable of batches, such as InMemory(x, y, batch_size=64)"
    elif gives_rows(data):
        what = f"a {type(data).__name__} of single examples"
        cure = "wrap it: Rows(data, batch_size=64, shuffle=True), or a DataLoader"
    elif isinstance(data, Mapping):
        what, cure = "a dict, whose keys would be the batches", "give the iterable of batches itself"
    elif not isinstance(data, Iterable):
        what, cure = f"a {type(data).__name__}, which cannot be iterated", "give an iterable of batches"
    else:
        return
    raise InputError(f"{name} is {what}", name=name, cure=cure)


def gives_rows(data: object) -> bool:
    """Whether ``data[i]`` is known to be an example and no batch: a Dataset, a data frame, or what only has rows.

    What has ``__getitems__`` hands out examples by their numbers, as torch's and Hugging Face's datasets do.
    """
    if isinstance(data, Dataset):
        return not isinstance(data, IterableDataset)
    if isinstance(data, type) or not (hasattr(data, "__getitem__") and hasattr(data, "__len__")):
        return False
    return hasattr(data, "__getitems__") or hasattr(data, "iloc") or not isinstance(data, Iterable)


def parts_of(batch: Any) -> dict[str, Any]:
    """What is ``inputs`` and what is ``targets`` in a batch.

    A pair is both, also one with names; so is a dict that has ``inputs``. Anything else is ``inputs`` as a whole.

    >>> parts_of((1, 2)), parts_of({"inputs": 1}), parts_of({"pixels": 1})
    ({'inputs': 1, 'targets': 2}, {'inputs': 1}, {'inputs': {'pixels': 1}})
    """
    if isinstance(batch, (list, tuple)) and len(batch) == 2:  # `list | tuple` would be made each time
        return {"inputs": batch[0], "targets": batch[1]}
    if isinstance(batch, Mapping) and "inputs" in batch:
        return {name: batch[name] for name in ("inputs", "targets") if name in batch}
    return {"inputs": batch}


def no_batch(data: object, name: str, when: str) -> InputError:
    """The error for a pass that gave no batch."""
    if is_read_once(data):
        cure = f"a {type(data).__name__} can be read once; give a list, a DataLoader, or a class with __iter__"
    else:
        cure = "it needs at least one batch; with drop_last, are there fewer examples than one batch?"
    return InputError(f"{name} gave no batch {when}", name=name, cure=cure)


def to_device(batch: Any, device: torch.device) -> Any:
    """The batch with every tensor in it on ``device``, without waiting for the copies; other things as they are.

    A copy to a GPU really runs beside the work only from pinned memory: ``DataLoader(..., pin_memory=True)``, or data
    that is there already, ``InMemory(..., device="cuda")``.
    """
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


def _count_down(data: Iterable[Any], length: int, name: str, done: int) -> Iterator[tuple[Any, bool]]:
    given = 0
    for given, batch in enumerate(data, start=done + 1):
        yield batch, given == length
    if given not in (0, length):  # that it gave none is an error of its own
        warnings.warn(
            f"{name} says len() = {length} but gave {given} batches, so `last_batch` was wrong",
            RuntimeWarning,
            stacklevel=2,
        )
    reset(data)


def _look_ahead(data: Iterable[Any]) -> Iterator[tuple[Any, bool]]:
    iterator = iter(data)
    batch = next(iterator, _END)
    while batch is not _END:
        following = next(iterator, _END)
        yield batch, following is _END
        batch = following
    reset(data)
