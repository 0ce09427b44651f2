"""Reading data batch by batch: which batch is the last, where an epoch begins, and which data cannot be read.

The only assumption is that the data is an iterable of batches; everything else about it (a length, an end, ``reset``,
``set_epoch``) is asked here.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence, Sized
from itertools import count, cycle
from types import FunctionType, GeneratorType
from typing import Any

import numpy as np
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, IterableDataset

from train_manager.model.modules import has_state
from train_manager.telling.errors import InputError


def begin_epoch(data: object, epoch: int) -> None:
    """Call ``set_epoch`` of the data, and of what they read: a loader's samplers and datasets, and wrapped data."""
    for one in (data, *wrapped_in(data)):
        for item in objects_in(one):
            if callable(set_epoch := getattr(item, "set_epoch", None)):
                set_epoch(epoch)


def objects_in(data: object) -> list[object]:
    """Return the data itself, the samplers and the dataset of a loader, and the datasets that a dataset wraps.

    The sets of ``Interleaved``, ``Together`` and ``Endless`` are not among them: these pass everything on themselves.
    """
    objects, known = [data], {id(data)}
    for item in objects:  # the list grows in the loop: what an object wraps may wrap others
        inner = [getattr(item, name, None) for name in ("sampler", "batch_sampler", "dataset")]
        several = getattr(item, "datasets", None)  # the attribute of ConcatDataset, ChainDataset and StackDataset
        inner += several.values() if isinstance(several, dict) else several if isinstance(several, list | tuple) else []
        # By identity, each once: datasets may wrap each other in a circle, and need not be hashable.
        objects += {id(new): new for new in inner if new is not None and id(new) not in known}.values()
        known.update(map(id, inner))
    return objects


def wrapped_in(data: object) -> list[Any]:
    """Return the data that an iterable of the user's own reads: loaders and data with epochs among its attributes.

    A loader wraps nothing, nor do data that tell their position or begin an epoch: these pass everything on themselves.
    """
    found: list[Any] = []
    wrappers = [data]
    for wrapper in wrappers:  # the list grows in the loop: a wrapper may wrap another
        if isinstance(wrapper, DataLoader) or has_state(wrapper) or hasattr(wrapper, "set_epoch"):
            continue
        for value in getattr(wrapper, "__dict__", {}).values():
            if isinstance(value, DataLoader) or (isinstance(value, Iterable) and hasattr(value, "set_epoch")):
                found.append(value)
            elif isinstance(value, Iterable) and not any(value is one for one in wrappers):
                wrappers.append(value)
    return found


def example_index_of(data: object, name: str) -> Any:
    """Return the numbers of the examples in the batch that the data gave last.

    Raises:
        InputError: the data do not number their examples, or have given no batch.
    """
    index = getattr(data, "example_index", None)
    if index is None:
        raise InputError(
            f"{name} ({type(data).__name__}) does not know the numbers of its examples",
            name="example_index",
            cure="InMemory, Rows and SeededDataLoader do; any dataset can return its index as a part of each example",
        )
    return index


def reset(data: object) -> None:
    """Call the data's ``reset``, if it has one."""
    if callable(method := getattr(data, "reset", None)):
        method()


def is_endless(data: object) -> bool:
    """Return whether a pass is known never to end: the data, or the dataset of a loader, says ``endless = True``."""
    declared = any(getattr(item, "endless", None) is True for item in (data, getattr(data, "dataset", None)))
    return declared or isinstance(data, count | cycle)


def length_of(data: object) -> int | None:
    """Return the number of batches, or None if it is unknown before they are read."""
    try:
        return len(data) if isinstance(data, Sized) else None
    except TypeError:  # DataLoader has __len__, which raises for a stream without a length
        return None


def is_read_once(data: object) -> bool:
    """Return whether a second pass would be empty: a generator, or the result of ``iter``, ``zip`` or ``map``."""
    # Not every iterator: an object of the user's own may begin anew in __iter__, although it has __next__.
    known = type(data).__module__ in ("builtins", "itertools", "torch.utils.data.dataloader")
    return isinstance(data, GeneratorType) or (known and isinstance(data, Iterator))


def refuse_unusable(data: object, name: str) -> None:
    """Refuse data that is not an iterable of batches.

    Raises:
        InputError: with the type of the data, and what to give instead.
    """
    if isinstance(data, list | tuple) and data:
        found = _misread(data)
        if not found:
            return
        kind, cure = found
    elif isinstance(data, Tensor | np.ndarray):
        kind = "a tensor" if isinstance(data, Tensor) else "an array"
        cure = "cut it into batches: InMemory(x, y, batch_size=64)"
    elif gives_rows(data):
        kind = f"a {type(data).__name__} of single examples"
        cure = "wrap it: Rows(data, batch_size=64, shuffle=True), or a DataLoader"
    elif isinstance(data, Mapping):
        kind = "a dict, whose keys would be the batches"
        cure = "give the iterable of batches itself; several sets by name: Interleaved(sets), or Together(sets)"
    elif isinstance(data, str | os.PathLike):
        kind = f"a path or a text, {data!r:.60}"
        cure = f"load it: {name.partition('[')[0]}=DataLoader(dataset, batch_size=64)"
    elif isinstance(data, type) or not isinstance(data, Iterable):
        kind, cure = _of_type(data)
    else:
        return
    raise InputError(f"{name} must be an iterable of batches, but is {kind}", name=name, cure=cure)


def refuse_examples(data: object, name: str) -> None:
    """Refuse a list of single examples, such as ``list(zip(x, y))``: each would be trained on as if it were a batch.

    Raises:
        InputError: the targets of the first pair are one number, while its inputs are several.
    """
    first = data[0] if isinstance(data, list | tuple) and data else None
    if not isinstance(first, list | tuple) or len(first) != 2:
        return
    inputs, targets = first
    if _dimensions(inputs) > 0 and _dimensions(targets) == 0:
        what = f"{name} must be an iterable of batches, but is a list of single examples: its targets are one number"
        cure = "cut it into batches: Rows(data, batch_size=64), or DataLoader(data, batch_size=64)"
        raise InputError(what, name=name, cure=cure)


def _dimensions(value: object) -> int:
    """Return the number of dimensions of a tensor, an array, a list or a number; -1 of anything else."""
    if isinstance(value, Tensor | np.ndarray | np.generic):
        return value.ndim
    return 1 if isinstance(value, list | tuple) else 0 if isinstance(value, int | float) else -1


# The cure for (x, y), which is one pair and would be read as two batches.
_PAIR = "cut it into batches: InMemory(x, y, batch_size=64); if it is one batch, a list of it: [(x, y)]"


def _misread(data: Sequence[Any]) -> tuple[str, str] | None:
    """Return the kind of a list or tuple that is certainly not meant as batches, and its cure; None for others."""
    if isinstance(data[0], DataLoader | Dataset) or callable(getattr(data[0], "set_epoch", None)):
        what = f"a {type(data).__name__} with a {type(data[0]).__name__}, which would be a batch"
        cure = 'give each its place: train_data=loader, eval_data={"valid": other}; to train on both: Interleaved'
        return what, cure
    if 2 <= len(data) <= 3 and all(isinstance(item, Tensor | np.ndarray) for item in data) and _are_columns(data):
        kind = "tensors" if isinstance(data[0], Tensor) else "arrays"
        return f"a {type(data).__name__} of {len(data)} {kind}, which would be a batch each", _PAIR
    return None


def _are_columns(data: Sequence[Any]) -> bool:
    """Return whether tensors have as many rows, but differ in kind: so do inputs and targets, and no batches.

    Batches in a list may be of sequences, which differ in length; so a list must differ in the types of its numbers.
    """
    rows = {item.shape[:1] for item in data}
    kinds = {item.dtype if isinstance(data, list) else (item.dtype, item.shape[1:]) for item in data}
    return len(rows) == 1 and rows != {()} and len(kinds) > 1


def _of_type(data: object) -> tuple[str, str]:
    if isinstance(data, type):
        return f"the class {data.__name__}", f"give an object: {data.__name__}(...)"
    if isinstance(data, FunctionType):
        return f"the function {data.__name__}", "call it; for a new generator each epoch write a class with __iter__"
    return f"of type {type(data).__name__}", ""


def gives_rows(data: object) -> bool:
    """Return whether ``data[i]`` is known to be an example, not a batch: a Dataset, a data frame, or only rows.

    ``__getitems__`` fetches examples by their numbers, in torch's datasets as in Hugging Face's.
    """
    if isinstance(data, Dataset):
        return not isinstance(data, IterableDataset)
    if isinstance(data, type) or not (hasattr(data, "__getitem__") and hasattr(data, "__len__")):
        return False
    return hasattr(data, "__getitems__") or hasattr(data, "iloc") or not isinstance(data, Iterable)


def no_batch(data: object, name: str, when: str) -> InputError:
    """Return the error for a pass that gave no batch."""
    if is_read_once(data):
        cure = f"a {type(data).__name__} can be read once; give a list, a DataLoader, or a class with __iter__"
    else:
        cure = "it needs at least one batch; with drop_last, are there fewer examples than one batch?"
    return InputError(f"{name} gave no batch {when}", name=name, cure=cure)
